"""CUDA C of the X-ray transform of straight scans.

Seen from above, all rays of a detector column are one line (see ``_kernels.scans``). Both kernels walk it plane by
plane and treat all of its rows at once.
"""

from __future__ import annotations

SOURCE = r"""
typedef long long i64;

// The numbers of a column and of a view, as fpdfp/ct/columns.py lays them out.
enum { AXIS, FIRST, STEP, START, SLOPE, LENGTH, SQUARE, PATH };
enum { HEIGHT, SCALE, MIDDLE, ROW, LEVEL, SOURCE_X, SOURCE_Y, WAY_X, WAY_Y, ACROSS_X, ACROSS_Y, VIEW };

// Adding these rounds to an integer, which is then in the low bits.
#define MAGIC 12582912.0f
#define MAGIC_BITS 0x4B400000

// Only the sum of squares is in double precision.
__device__ __forceinline__ float ray_length(const double* path, const double* view, int row) {
    double rise = view[LEVEL] + row * view[ROW];
    return sqrtf((float)(path[SQUARE] + rise * rise)) * (float)path[LENGTH];
}

// ---- forward: a thread has R rows around the row of number R / 2 ----
//
// On a plane the ray of row b is at height z = z0 + s b, and meets the linear interpolation of a blended line c.
// Rows on both sides of a base row rise by less than a voxel. So each row has one kink at most: with k = floor(z) of
// the base row, f = z - k, and row r counted from the base row,
//
//     value = c[k] + (f + r s) d + max(f + r s - 1, 0) (up - d)      for r > 0,
//     value = c[k] + (f + r s) d + max(-(f + r s), 0) (d - down)     for r < 0,
//
// down = c[k] - c[k-1], d = c[k+1] - c[k], up = c[k+2] - c[k+1]. The threads of a block are dealt to its columns
// without regard to warps, and half a warp blends a line, four voxels at a time.

// The most columns of a block; the same number is in xray.py.
#define MOST_IN_BLOCK 2

struct Blend { int near_line, far_line; float near_weight, far_weight; };

template <int R>
__global__ void __launch_bounds__(256, 4) forward(
    const float* __restrict__ x, int nx, int ny, int nz, const double* __restrict__ paths,
    const double* __restrict__ tables, const i64* __restrict__ views, int nu, int nv, int planes, int groups,
    int in_block, float* __restrict__ y
) {
    extern __shared__ float4 room[];
    __shared__ int2 spans[MOST_IN_BLOCK];
    const int padded = (nz + 3) / 4 * 4, width = padded + 8, items = in_block * planes;
    float4* marks = room;
    Blend* blends = (Blend*)(room + items);
    float* lines = (float*)(room + 2 * items);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    const int own = threadIdx.x / groups, group = threadIdx.x % groups + blockIdx.z * groups;
    const int first_column = blockIdx.x * in_block;
    const i64 view = views[blockIdx.y];
    const double* table = tables + view * VIEW;

    // The planes on which the line of each column is within a voxel of the volume.
    if (threadIdx.x < in_block) {
        const int column = first_column + threadIdx.x;
        int lo = 0, hi = 0;
        if (column < nu) {
            const double* path = paths + (view * nu + column) * PATH;
            const bool along_y = path[AXIS] != 0.0;
            const int n = along_y ? ny : nx, m = along_y ? nx : ny;
            const double at_first = path[START] + path[FIRST] * path[SLOPE], change = path[STEP] * path[SLOPE];
            hi = n;
            if (fabs(change) < 1e-12) {
                if (!(at_first > -1.0 && at_first < m)) hi = 0;
            } else {
                double a = (-1.0 - at_first) / change, b = (m - at_first) / change;
                lo = (int)fmax(0.0, floor(fmin(a, b)));
                hi = (int)fmin((double)n, ceil(fmax(a, b)) + 1.0);
            }
        }
        spans[threadIdx.x] = make_int2(lo, max(lo, hi));
    }
    for (int item = threadIdx.x; item < items; item += blockDim.x) {
        float* line = lines + item * width;
        for (int k = 0; k < 4; ++k) line[k] = 0.0f;
        for (int k = 4 + nz; k < width; ++k) line[k] = 0.0f;
    }
    __syncthreads();
    int longest = 0;
    for (int c = 0; c < in_block; ++c) longest = max(longest, spans[c].y - spans[c].x);
    const int2 span = own < in_block ? spans[own] : make_int2(0, 0);
    const float4* own_marks = marks + own * planes;
    const float* own_lines = lines + own * planes * width + 1;

    const float entries = (float)(nz + 3), base_row = (float)(R * group + R / 2);
    const double scale = 1.0 / (nz + 3);
    float sum = 0.0f, rise = 0.0f, bend[R];
    #pragma unroll
    for (int r = 0; r < R; ++r) bend[r] = 0.0f;

    for (int base = 0; base < longest; base += planes) {
        if (base) __syncthreads();
        for (int item = warp + lane * warps; item < items; item += 32 * warps) {
            const int c = item / planes, i = spans[c].x + base + item % planes;
            Blend blend = {-1, 0, 0.0f, 0.0f};
            if (i < spans[c].y) {
                const double* path = paths + (view * nu + first_column + c) * PATH;
                const bool along_y = path[AXIS] != 0.0;
                const int m = along_y ? nx : ny;
                const int main_stride = along_y ? nz : ny * nz, other_stride = along_y ? ny * nz : nz;
                double t = path[FIRST] + i * path[STEP], g = path[START] + t * path[SLOPE], below = floor(g);
                double s = t * table[SCALE];
                int j = (int)below;
                float share = (float)(g - below);
                blend = Blend{
                    i * main_stride + min(max(j, 0), m - 1) * other_stride,
                    i * main_stride + min(max(j + 1, 0), m - 1) * other_stride,
                    t <= 0.0 || j < 0 || j >= m ? 0.0f : 1.0f - share,
                    t <= 0.0 || j + 1 < 0 || j + 1 >= m ? 0.0f : share
                };
                marks[item] = make_float4(
                    (float)((table[HEIGHT] - s * table[MIDDLE] + 2.0) * scale), (float)(s * scale), (float)s, 0.0f
                );
            }
            blends[item] = blend;
        }
        __syncwarp();
        if (nz % 4 == 0) {
            #pragma unroll 2
            for (int item = warp + lane / 16 * warps; item < items; item += 2 * warps) {
                const Blend blend = blends[item];
                if (blend.near_line < 0) continue;
                const float4* a = (const float4*)(x + blend.near_line);
                const float4* b = (const float4*)(x + blend.far_line);
                float4* line = (float4*)(lines + item * width + 4);
                for (int k = lane % 16; k < nz / 4; k += 16) {
                    float4 va = a[k], vb = b[k];
                    line[k] = make_float4(
                        blend.near_weight * va.x + blend.far_weight * vb.x,
                        blend.near_weight * va.y + blend.far_weight * vb.y,
                        blend.near_weight * va.z + blend.far_weight * vb.z,
                        blend.near_weight * va.w + blend.far_weight * vb.w
                    );
                }
            }
        } else {
            for (int item = warp; item < items; item += warps) {
                const Blend blend = blends[item];
                if (blend.near_line < 0) continue;
                const float *a = x + blend.near_line, *b = x + blend.far_line;
                float* line = lines + item * width + 4;
                for (int k = lane; k < nz; k += 32) line[k] = blend.near_weight * a[k] + blend.far_weight * b[k];
            }
        }
        __syncthreads();
        const int filled = min(planes, span.y - span.x - base);
        #pragma unroll 4
        for (int p = 0; p < filled; ++p) {
            const float4 mark = own_marks[p];
            float z = __saturatef(fmaf(base_row, mark.y, mark.x));
            float whole = __fmaf_rd(z, entries, MAGIC);
            float f = fmaf(z, entries, MAGIC - whole), over = f - 1.0f;
            const float* c = own_lines + p * width + (__float_as_int(whole) - MAGIC_BITS);
            const float below = c[0], at = c[1], above = c[2], beyond = c[3];
            const float d = above - at, e_up = (beyond - above) - d, e_down = d - (at - below);
            sum += fmaf(f, d, at);
            rise = fmaf(mark.z, d, rise);
            #pragma unroll
            for (int r = 1; r < R - R / 2; ++r)
                bend[R / 2 + r] = fmaf(__saturatef(fmaf((float)r, mark.z, over)), e_up, bend[R / 2 + r]);
            #pragma unroll
            for (int r = 1; r <= R / 2; ++r)
                bend[R / 2 - r] = fmaf(__saturatef(fmaf((float)r, mark.z, -f)), e_down, bend[R / 2 - r]);
        }
    }
    const int column = first_column + own;
    if (own >= in_block || column >= nu) return;
    const double* path = paths + (view * nu + column) * PATH;
    float* out = y + ((i64)blockIdx.y * nu + column) * nv;
    #pragma unroll
    for (int r = 0; r < R; ++r) {
        const int row = R * group + r;
        if (row < nv) out[row] = (sum + fmaf((float)(r - R / 2), rise, bend[r])) * ray_length(path, table, row);
    }
}

// ---- adjoint ----
//
// As a function of the row, what a plane gives to a column is piecewise linear, with a knot at each voxel height. The
// transpose reads a column's data, summed twice from the top, at the knots, and takes second differences. Data are
// integers here: sums may overflow, since differences are right modulo 2^32 as long as they are small themselves. With
// knots at i + f, f from 0 to 1, sums S and single sums P, the second difference around the middle knot is
//
//     S[left] - 2 S[middle] + S[right] - P[middle] (i[left] - 2 i[middle] + i[right])
//         + f[left] (P[left] - P[middle]) + f[right] (P[right] - P[middle]).

// The largest number of a column, and the largest distance of knots in rows: (FARTHEST + 1)^2 + 2 times the first is
// below 2^31.
#define LARGEST 1.9e6f
#define FARTHEST 32.0f

// A warp sums a column; rows are dealt to lanes from the top down.
__global__ void sum_twice(
    const float* __restrict__ y, const double* __restrict__ paths, const double* __restrict__ tables,
    const i64* __restrict__ views, int nu, int nv, int pitch, i64 columns, unsigned* __restrict__ sums,
    float* __restrict__ units
) {
    const i64 column = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (column >= columns) return;
    const i64 view = views[column / nu];
    const double* path = paths + (view * nu + column % nu) * PATH;
    const double* table = tables + view * VIEW;
    const float* data = y + column * nv;
    float most = 0.0f;
    for (int row = lane; row < nv; row += 32) most = fmaxf(most, fabsf(data[row] * ray_length(path, table, row)));
    for (int w = 16; w; w /= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, w));
    const float scale = most > 0.0f ? LARGEST / most : 0.0f;
    if (lane == 0) units[column] = most / LARGEST;
    unsigned* out = sums + column * pitch;
    for (int row = nv + lane; row < pitch; row += 32) out[row] = 0;
    unsigned once = 0, twice = 0;
    for (int top = nv - 1; top >= 0; top -= 32) {
        const int row = top - lane;
        unsigned a = row >= 0 ? (unsigned)__float2int_rn(data[row] * ray_length(path, table, row) * scale) : 0;
        for (int w = 1; w < 32; w *= 2) { unsigned o = __shfl_up_sync(0xFFFFFFFFu, a, w); if (lane >= w) a += o; }
        a += once;
        unsigned b = a;
        for (int w = 1; w < 32; w *= 2) { unsigned o = __shfl_up_sync(0xFFFFFFFFu, b, w); if (lane >= w) b += o; }
        b += twice;
        if (row >= 0) out[row] = b;
        once = __shfl_sync(0xFFFFFFFFu, a, 31);
        twice = __shfl_sync(0xFFFFFFFFu, b, 31);
    }
}

#define TILE 16
#define DEPTH 64

// How a column crosses a plane: the distance of knots in rows, the first knot counted from the row `base`, which line
// it crosses first (note / 4 - 1), whether all knots are on the panel (1) and not too far apart (2), and what it gives
// to the two lines.
struct __align__(8) Crossing { float spacing, start; int base, note; float near_weight, far_weight; };

struct Knot { int i; float f; unsigned twice, once; };

// Beyond the ends, from `low` to `high`, the sums go on as straight lines.
template <bool INSIDE>
__device__ __forceinline__ void place(Knot& knot, float position, int low, int high) {
    if (!INSIDE) position = fminf(fmaxf(position, -2e6f), 2e6f);
    const float whole = __fadd_rd(position, MAGIC);
    knot.i = __float_as_int(whole) - MAGIC_BITS;
    knot.f = position - (whole - MAGIC);
    if (!INSIDE) {
        const int kept = min(max(knot.i, low), high);
        knot.f += (float)(knot.i - kept);
        knot.i = kept;
    }
}

__device__ __forceinline__ void read(Knot& knot, const unsigned* sums) {
    knot.twice = sums[knot.i];
    knot.once = sums[knot.i + 1] - knot.twice;
}

__device__ __forceinline__ float bend(const Knot& left, const Knot& at, const Knot& right) {
    const unsigned turns = (unsigned)(left.i - 2 * at.i + right.i);
    const int whole = (int)(left.twice - 2 * at.twice + right.twice - at.once * turns);
    const float inner = fmaf(left.f, (float)(int)(left.once - at.once), (float)whole);
    return fmaf(right.f, (float)(int)(right.once - at.once), inner);
}

// What one crossing gives to two neighbouring voxels of a lane; `sums` begins at the row of the crossing.
template <bool INSIDE>
__device__ __forceinline__ float2 second_differences(const unsigned* sums, const Crossing& c, int lane, int nv) {
    const int low = -c.base, high = nv - c.base;
    Knot left, a, b, right;
    place<INSIDE>(left, fmaf((float)(2 * lane - 1), c.spacing, c.start), low, high);
    place<INSIDE>(a, fmaf((float)(2 * lane), c.spacing, c.start), low, high);
    place<INSIDE>(b, fmaf((float)(2 * lane + 1), c.spacing, c.start), low, high);
    place<INSIDE>(right, fmaf((float)(2 * lane + 2), c.spacing, c.start), low, high);
    read(a, sums);
    read(b, sums);
    left.twice = __shfl_up_sync(0xFFFFFFFFu, b.twice, 1);
    left.once = __shfl_up_sync(0xFFFFFFFFu, b.once, 1);
    right.twice = __shfl_down_sync(0xFFFFFFFFu, a.twice, 1);
    right.once = __shfl_down_sync(0xFFFFFFFFu, a.once, 1);
    if (lane == 0) read(left, sums);
    if (lane == 31) read(right, sums);
    return make_float2(bend(left, a, b), bend(a, b, right));
}

// The same for knots that are far apart, from the numbers of each row.
__device__ float2 sums_of_rows(const unsigned* column, const Crossing& c, int lane, int nv) {
    float found[2];
    for (int k = 0; k < 2; ++k) {
        const float at = fmaf((float)(2 * lane + k), c.spacing, c.start) + (float)c.base;
        const int first = (int)fmaxf(ceilf(at - c.spacing), 1.0f), last = (int)fminf(floorf(at + c.spacing), (float)nv);
        found[k] = 0.0f;
        for (int i = first; i <= last; ++i) {
            const int number = (int)(column[i - 1] - 2 * column[i] + column[i + 1]);
            found[k] = fmaf(c.spacing - fabsf((float)i - at), (float)number, found[k]);
        }
    }
    return make_float2(found[0], found[1]);
}

// The columns that can cross each tile, and a voxel around it, in each view.
__global__ void tile_columns(
    const double* __restrict__ tables, const i64* __restrict__ views, int n_views, int nx, int ny, int nu,
    int2* __restrict__ ranges
) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int tiles_x = (nx + TILE - 1) / TILE, tiles_y = (ny + TILE - 1) / TILE;
    if (i >= (i64)n_views * tiles_x * tiles_y) return;
    const double* table = tables + views[i % n_views] * VIEW;
    const int tile = (int)(i / n_views), x0 = tile / tiles_y * TILE, y0 = tile % tiles_y * TILE;
    const double ahead = table[WAY_X] * table[ACROSS_Y] - table[WAY_Y] * table[ACROSS_X];
    double least = 1e30, most = -1e30;
    bool beside = false;
    for (int corner = 0; corner < 4; ++corner) {
        double px = (corner & 1 ? min(x0 + TILE, nx) : x0 - 1) - table[SOURCE_X];
        double py = (corner & 2 ? min(y0 + TILE, ny) : y0 - 1) - table[SOURCE_Y];
        double depth = px * table[ACROSS_Y] - py * table[ACROSS_X];
        double at = -(px * table[WAY_Y] - py * table[WAY_X]) / depth;
        // A voxel beyond the volume may be beside or behind a source that is near: its shadow then tells nothing.
        beside |= !(depth * ahead > 0.0);
        least = fmin(least, at);
        most = fmax(most, at);
    }
    if (beside) { least = 0.0; most = nu; }
    ranges[i] = make_int2(
        (int)fmin(fmax(ceil(least - 1e-6), 0.0), (double)nu), (int)fmin(fmax(floor(most + 1e-6) + 1.0, 0.0), (double)nu)
    );
}

// The next columns of a group of views that a tile sees.
struct Cursor { int view, begin, column, end; };

__device__ __forceinline__ void next_batch(Cursor& at, int batch, int stop, const int2* ranges) {
    at.column += batch;
    while (at.column >= at.end && at.view < stop) {
        if (++at.view < stop) {
            const int2 range = ranges[at.view];
            at.begin = at.column = range.x;
            at.end = range.y;
        }
    }
}

__device__ __forceinline__ void copy_async(void* shared, const void* global) {
    unsigned to = (unsigned)__cvta_generic_to_shared(shared);
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(global));
#else
    *(uint4*)shared = *(const uint4*)global;
#endif
}

__device__ __forceinline__ void copies_done() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// A block has a tile of 16 x 16 lines of 64 voxels; its warp w has plane w of the tile, across x or across y.
__global__ void __launch_bounds__(512, 2) adjoint(
    const unsigned* __restrict__ sums, const float* __restrict__ units, const double* __restrict__ paths,
    const double* __restrict__ tables, const i64* __restrict__ views, int n_views, const int2* __restrict__ all_ranges,
    const int* __restrict__ group_starts, int nx, int ny, int nz, int nu, int nv, int pitch, int batch,
    float* __restrict__ out
) {
    extern __shared__ uint4 memory[];
    float* tile = (float*)memory;
    unsigned* columns = (unsigned*)(tile + TILE * TILE * DEPTH);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int strip = 32 / batch * batch;
    Crossing* crossings = (Crossing*)(columns + 2 * batch * pitch) + warp * strip;
    const int tiles_y = (ny + TILE - 1) / TILE;
    const int x0 = blockIdx.x / tiles_y * TILE, y0 = blockIdx.x % tiles_y * TILE, z0 = blockIdx.y * DEPTH;
    const int2* ranges = all_ranges + (i64)blockIdx.x * n_views;
    const int stop = group_starts[blockIdx.z + 1];
    for (int i = threadIdx.x; i < TILE * TILE * DEPTH; i += blockDim.x) tile[i] = 0.0f;

    Cursor at = {group_starts[blockIdx.z] - 1, 0, 0, 0}, ahead;
    next_batch(at, batch, stop, ranges);
    auto fetch = [&](const Cursor& c, int half) {
        if (c.view >= stop) return;
        const int count = min(batch, c.end - c.column);
        const unsigned* from = sums + ((i64)c.view * nu + c.column) * pitch;
        unsigned* to = columns + half * batch * pitch;
        for (int i = 4 * threadIdx.x; i < count * pitch; i += 4 * blockDim.x) copy_async(to + i, from + i);
    };
    fetch(at, 0);
    unsigned across_y = 0, crossed = 0;
    for (int half = 0; at.view < stop; half ^= 1, at = ahead) {
        copies_done();
        __syncthreads();
        ahead = at;
        next_batch(ahead, batch, stop, ranges);
        fetch(ahead, half ^ 1);
        const int shift = (at.column - at.begin) % strip, count = min(batch, at.end - at.column);
        const unsigned* column = columns + half * batch * pitch;
        if (shift == 0) {
            // A lane looks after one of the next columns.
            const i64 view = views[at.view];
            const double* table = tables + view * VIEW;
            const double knots_from = table[MIDDLE] + 1.0, knots_by = z0 - table[HEIGHT];
            bool crosses = false, on_y = false;
            if (lane < min(strip, at.end - at.column)) {
                const double* path = paths + (view * nu + at.column + lane) * PATH;
                on_y = path[AXIS] != 0.0;
                const int plane = (on_y ? y0 : x0) + warp;
                double t = path[FIRST] + plane * path[STEP];
                double g = path[START] + t * path[SLOPE] - (on_y ? x0 : y0), below = floor(g);
                crosses = t > 0.0 && below >= -1.0 && below < TILE && plane < (on_y ? ny : nx);
                if (crosses) {
                    const double s = t * table[SCALE], spacing = 1.0 / s, start = knots_from + knots_by * spacing;
                    const double base = fmin(fmax(floor(start), -1e8), 1e8);
                    const float share = (float)(g - below);
                    const float weight = (float)s * units[(i64)at.view * nu + at.column + lane];
                    const bool inside = start - spacing >= 1e-3 && start + DEPTH * spacing < nv - 1e-3;
                    const bool close = spacing <= FARTHEST;
                    crossings[lane] = Crossing{
                        (float)spacing, (float)(start - base), (int)base, 4 * ((int)below + 1) + 2 * close + inside,
                        (1.0f - share) * weight, share * weight
                    };
                }
            }
            across_y = __ballot_sync(0xFFFFFFFFu, on_y);
            crossed = __ballot_sync(0xFFFFFFFFu, crosses);
            __syncwarp();
        }
        const unsigned here = count == 32 ? 0xFFFFFFFFu : (1u << count) - 1;
        const unsigned of_y = across_y >> shift & here;
        const bool both = of_y != 0 && of_y != here;
        for (int pass = 0; pass < (both ? 2 : 1); ++pass) {
            if (pass) __syncthreads();
            const bool along_y = both ? pass : of_y != 0;
            unsigned todo = crossed >> shift & (along_y ? of_y : here & ~of_y);
            int line = -100;
            float2 near_sum = make_float2(0.0f, 0.0f), far_sum = near_sum;
            auto put = [&](int at_line, float2& what) {
                if (at_line >= 0 && at_line < TILE) {
                    int where = along_y ? at_line * TILE + warp : warp * TILE + at_line;
                    float2* voxels = (float2*)(tile + where * DEPTH) + lane;
                    float2 old = *voxels;
                    *voxels = make_float2(old.x + what.x, old.y + what.y);
                }
                what = make_float2(0.0f, 0.0f);
            };
            while (todo) {
                const int one = __ffs(todo) - 1;
                todo &= todo - 1;
                const Crossing c = crossings[shift + one];
                const int next = (c.note >> 2) - 1;
                if (next != line) {
                    // Neighbouring columns cross the same lines, or the next: what they share stays in registers.
                    if (next == line + 1) {
                        put(line, near_sum);
                        float2 kept = far_sum; far_sum = near_sum; near_sum = kept;
                    } else if (next == line - 1) {
                        put(line + 1, far_sum);
                        float2 kept = near_sum; near_sum = far_sum; far_sum = kept;
                    } else {
                        put(line, near_sum);
                        put(line + 1, far_sum);
                    }
                    line = next;
                }
                const unsigned* data = column + one * pitch;
                float2 given;
                if ((c.note & 3) == 3) given = second_differences<true>(data + c.base, c, lane, nv);
                else if (c.note & 2) given = second_differences<false>(data + c.base, c, lane, nv);
                else given = sums_of_rows(data, c, lane, nv);
                near_sum.x = fmaf(c.near_weight, given.x, near_sum.x);
                near_sum.y = fmaf(c.near_weight, given.y, near_sum.y);
                far_sum.x = fmaf(c.far_weight, given.x, far_sum.x);
                far_sum.y = fmaf(c.far_weight, given.y, far_sum.y);
            }
            put(line, near_sum);
            put(line + 1, far_sum);
            __syncwarp();
        }
    }
    __syncthreads();
    out += (i64)blockIdx.z * nx * ny * nz;
    for (int i = threadIdx.x; i < TILE * TILE * DEPTH; i += blockDim.x) {
        int z = z0 + i % DEPTH, yy = y0 + i / DEPTH % TILE, xx = x0 + i / (DEPTH * TILE);
        if (z < nz && yy < ny && xx < nx) {
            i64 where = ((i64)xx * ny + yy) * nz + z;
            out[where] += tile[i];
        }
    }
}
"""
