"""The file that ``fpdfp init`` writes."""

EXAMPLE = """# An experiment of fpdfp: `fpdfp run {name}` runs it, `fpdfp report` shows what came of it.
# What is left out has a default; config.toml in the folder of a run has all of them written out.
name = "breast-cancer"

[data]
name = "breast-cancer"   # of scikit-learn; or "digits", "a9a", "covtype"
# file = "rows.csv"      # or a file of yours: CSV, TSV, Parquet or LIBSVM, relative to this file,
# label = "diagnosis"    # and which of its columns is to be predicted
test = 0.2               # the share of rows that is kept for testing
standardize = true       # mean 0 and variance 1 in every column
intercept = true         # a column of ones, which the penalty leaves alone

[split]
kind = "dirichlet"       # or "iid", "by_label", "by_quantity", or "by_column" with data.site
clients = 20
concentration = 1.0      # small: clients with very different labels

[loss]
kind = "logistic"        # or "least-squares", "softmax"
l2 = 0.01

[operator]
kind = "graph"           # B = [G; I] with a graph of the features; or "identity", "difference", "gradient", "file"
alpha = 0.1              # the penalty of the graphical lasso that finds the graph

[penalty]
kind = "l1"              # or "group", "box", "non-negative", "none"
weight = 0.002

[method]
kind = "automatic"       # or one of fpdfp.methods with its parameters, such as "FPDFP" and step = 0.5

[compressor]
kind = "automatic"       # what clients send: "none", or one of fpdfp.compress, such as "QSGD" and levels = 20

[downlink]
kind = "automatic"       # what the server sends, likewise

[run]
rounds = 100
clients_per_round = 10   # or "all"
seeds = [0]
tol = 1e-6               # stop at this relative duality gap; 0 runs all rounds
reference = true         # find the minimum by an independent solver, for relative errors

# [sweep]                # all combinations of these: `fpdfp sweep {name}` runs them on all cores
# run.clients_per_round = [5, 10, 20]
# compressor = [{{ kind = "none" }}, {{ kind = "QSGD", levels = 5, norm = "max" }}]
"""
