"""The arrays that describe a scan to the kernels of the X-ray transform, and their layout."""

from __future__ import annotations

from typing import NamedTuple

from fpdfp._typing import Array

#: The numbers of a column, in the order of the last axis of ``Columns.paths``.
AXIS, FIRST, STEP, START, SLOPE, LENGTH, SQUARE = range(7)
#: The numbers of a view, in the order of the last axis of ``Columns.views``.
HEIGHT, SCALE, MIDDLE, ROW, LEVEL, SOURCE_X, SOURCE_Y, WAY_X, WAY_Y, ACROSS_X, ACROSS_Y = range(11)


class Columns(NamedTuple):
    """The columns of all views of a straight scan, in units of voxels.

    In a straight scan all rays of a column lie in one upright plane. Seen from above they are one line, which steps
    through the planes i of the volume along x or along y, whichever it is more aligned with. On plane i the line is at

        t = first + i · step,        g = start + t · slope,

    t in multiples of the way from source to panel, g the other coordinate, and the ray of row b is at height

        z = height + t · scale · (b − middle).

    Attributes
    ----------
    paths
        ``(views, nu, 7)``: axis (0 for x, 1 for y), first, step, start, slope, length (|step|), and a squared length.
        The last is the way from the source to the panel, seen from above, in the unit of the geometry.
    views
        ``(views, 11)``: height, scale, middle; the distance between rows; the height of the panel's row 0 above the
        source. The way from source to pixel rises by level + b · row, in the unit of the geometry. The others are seen
        from above: the way from the source to column 0, and the step to the next column.
    """

    paths: Array
    views: Array


#: What a view consists of, in the order of the second axis of ``Frames.frames``.
SOURCE, WAY, ACROSS, UP = range(4)


class Frames(NamedTuple):
    """The views of any scan, in units of voxels.

    Positions are numbers of voxels: the centre of voxel (i, j, k) is at (i, j, k). From the source to the centre of
    pixel (a, b) it is

        way + a · across + b · up.

    Attributes
    ----------
    frames
        ``(views, 4, 3)``: the source, and the vectors way, across and up.
    voxel
        The three sides of a voxel, in the unit of the geometry.
    """

    frames: Array
    voxel: Array
