"""The paper's experiments: experiment files, their runs, claims with verdicts, figures and pages."""
