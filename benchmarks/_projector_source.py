"""CUDA C of other kernels for the X-ray transform of straight scans, which ``benchmarks.projector_kernels`` compares.

They are appended to the source of the package, whose definitions they use.
"""

from __future__ import annotations

SOURCE = r"""
// ---- forward: a thread has R rows around the row of number R / 2 ----
//
// Rows on both sides of a base row rise by less than a voxel. So each row has one kink at most: with k = floor(z) of
// the base row, f = z - k, and row r counted from the base row,
//
//     value = c[k] + (f + r s) d + max(f + r s - 1, 0) (up - d)      for r > 0,
//     value = c[k] + (f + r s) d + max(-(f + r s), 0) (d - down)     for r < 0,
//
// down = c[k] - c[k-1], d = c[k+1] - c[k], up = c[k+2] - c[k+1]. The threads of a block are dealt to its columns
// without regard to warps, and half a warp blends a line, four voxels at a time.

#define MOST_IN_BLOCK 8

// Only the sum of squares is in double precision.
__device__ __forceinline__ float quick_length(const double* path, const double* view, int row) {
    double rise = view[LEVEL] + row * view[ROW];
    return sqrtf((float)(path[SQUARE] + rise * rise)) * (float)path[LENGTH];
}

template <int R, int BLOCKS>
__global__ void __launch_bounds__(256, BLOCKS) forward_centred(
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
        if (row < nv) out[row] = (sum + fmaf((float)(r - R / 2), rise, bend[r])) * quick_length(path, table, row);
    }
}

// ---- adjoint: sums and first moments of rows between knots, in integers ----
//
// With L the sum of a column's data between two knots and M its first moment about the lower one, voxel k gets
// L_k + s (M_(k-1) - M_k). Both are differences of sums from row 0 on, taken in 32-bit integers: these may wrap around,
// but their differences do not, since the data of a column is scaled by a power of two to fit.

// A warp sums a column. The entry after the last sum has the scale.
__global__ void sum_moments(
    const float* __restrict__ y, const double* __restrict__ paths, const double* __restrict__ tables,
    const i64* __restrict__ views, int nu, int nv, int pitch, i64 columns, int bits, int2* __restrict__ sums
) {
    const i64 column = (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (column >= columns) return;
    const i64 view = views[column / nu];
    const double* path = paths + (view * nu + column % nu) * PATH;
    const double* table = tables + view * VIEW;
    const float* data = y + column * nv;
    int2* out = sums + column * pitch;
    float most = 0.0f;
    bool finite = true;
    for (int row = lane; row < nv; row += 32) {
        float a = fabsf(data[row] * quick_length(path, table, row));
        finite = finite && a < 3e38f;
        most = fmaxf(most, a);
    }
    for (int w = 16; w; w /= 2) most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, w));
    finite = __all_sync(0xFFFFFFFFu, finite);
    int exponent = 0;
    frexpf(most, &exponent);
    exponent = max(exponent, bits - 120);
    const float unit = finite ? ldexpf(1.0f, bits - exponent) : 0.0f;
    unsigned once = 0, moment = 0;
    for (int first = 0; first < nv; first += 32) {
        const int row = first + lane;
        unsigned own = row < nv ? (unsigned)__float2int_rn(data[row] * quick_length(path, table, row) * unit) : 0u;
        unsigned of_row = own * (unsigned)row, a = own, b = of_row;
        for (int w = 1; w < 32; w *= 2) {
            unsigned oa = __shfl_up_sync(0xFFFFFFFFu, a, w), ob = __shfl_up_sync(0xFFFFFFFFu, b, w);
            if (lane >= w) { a += oa; b += ob; }
        }
        if (row < nv) out[row] = make_int2((int)(once + a - own), (int)(moment + b - of_row));
        once += __shfl_sync(0xFFFFFFFFu, a, 31);
        moment += __shfl_sync(0xFFFFFFFFu, b, 31);
    }
    if (lane == 0) {
        out[nv] = make_int2((int)once, (int)moment);
        float back = finite ? ldexpf(1.0f, exponent - bits) : __int_as_float(0x7FC00000);
        out[nv + 1] = make_int2(__float_as_int(back), 0);
    }
}

// Adding this leaves 20 bits after the point, which are then the low ones.
#define WIDE_20 6442450944.0

// How a column crosses a plane: the row of the lowest knot of a tile, the distance of knots in rows, one over it, the
// first of the two lines and whether all knots are on the panel, and what it gives to the two lines.
struct __align__(16) Passage { double start, spacing; float near_weight, far_weight, rise; int note; };

struct Knot { int row; float share; int sum, moment; };

template <bool INSIDE>
__device__ __forceinline__ Knot knot_at(const int2* sums, double position, int nv) {
    Knot knot;
    int place;
    if (INSIDE) {
        int fixed = __double2loint(position + WIDE_20);
        knot.row = fixed >> 20;
        knot.share = __int_as_float(0x3F800000 | (fixed << 3 & 0x7FFFF8)) - 1.0f;
        place = knot.row + 1;
    } else {
        // Beyond the ends the sums stay as they are; the moment is about the row that is kept.
        place = (int)fmin(fmax(floor(position) + 1.0, 0.0), (double)nv);
        knot.row = place - 1;
        knot.share = (float)(position - knot.row);
    }
    int2 there = sums[place];
    knot.sum = there.x;
    knot.moment = there.y;
    return knot;
}

struct Between { float sum, moment; };

__device__ __forceinline__ Between between(const Knot& knot, int next_sum, int next_moment) {
    const int sum = (int)((unsigned)next_sum - (unsigned)knot.sum);
    const unsigned about = (unsigned)knot.row * (unsigned)sum;
    const int moment = (int)((unsigned)next_moment - (unsigned)knot.moment - about);
    const float total = (float)sum;
    return Between{total, fmaf(-knot.share, total, (float)moment)};
}

// What one crossing gives to two neighbouring voxels of a lane.
template <bool INSIDE>
__device__ __forceinline__ float2 hat_sums(
    const int2* sums, double start, double spacing, float rise, double twice_lane, double edge_number, int lane, int nv
) {
    const double position = fma(twice_lane, spacing, start);
    const Knot a = knot_at<INSIDE>(sums, position, nv), b = knot_at<INSIDE>(sums, position + spacing, nv);
    const Knot edge = knot_at<INSIDE>(sums, fma(edge_number, spacing, start), nv);
    int next_sum = __shfl_down_sync(0xFFFFFFFFu, a.sum, 1), next_moment = __shfl_down_sync(0xFFFFFFFFu, a.moment, 1);
    if (lane == 31) { next_sum = edge.sum; next_moment = edge.moment; }
    const Between one = between(a, b.sum, b.moment), two = between(b, next_sum, next_moment);
    const Between before = between(edge, a.sum, a.moment);
    float left = __shfl_up_sync(0xFFFFFFFFu, two.moment, 1);
    if (lane == 0) left = before.moment;
    return make_float2(fmaf(rise, left - one.moment, one.sum), fmaf(rise, one.moment - two.moment, two.sum));
}

// A block has a tile of 16 x 16 lines of 64 voxels; its warp w has plane w of the tile, across x or across y.
__global__ void __launch_bounds__(512, 2) adjoint_moments(
    const int2* __restrict__ sums, const double* __restrict__ paths, const double* __restrict__ tables,
    const i64* __restrict__ views, int n_views, const int2* __restrict__ all_ranges,
    const int* __restrict__ group_starts, int nx, int ny, int nz, int nu, int nv, int pitch, int batch,
    float* __restrict__ out
) {
    extern __shared__ double2 depot[];
    float* tile = (float*)depot;
    int2* columns = (int2*)(tile + TILE * TILE * DEPTH);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int strip = 32 / batch * batch;
    Passage* passages = (Passage*)(columns + 2 * batch * pitch) + warp * strip;
    const int tiles_y = (ny + TILE - 1) / TILE;
    const int x0 = blockIdx.x / tiles_y * TILE, y0 = blockIdx.x % tiles_y * TILE, z0 = blockIdx.y * DEPTH;
    const int2* ranges = all_ranges + (i64)blockIdx.x * n_views;
    const int stop = group_starts[blockIdx.z + 1];
    const double twice_lane = 2 * lane, edge_number = lane < 16 ? -1.0 : (double)DEPTH;
    for (int i = threadIdx.x; i < TILE * TILE * DEPTH; i += blockDim.x) tile[i] = 0.0f;

    Cursor at = {group_starts[blockIdx.z] - 1, 0, 0, 0}, ahead;
    next_batch(at, batch, stop, ranges);
    auto fetch = [&](const Cursor& c, int half) {
        if (c.view >= stop) return;
        const int count = min(batch, c.end - c.column);
        const int2* from = sums + ((i64)c.view * nu + c.column) * pitch;
        int2* to = columns + half * batch * pitch;
        for (int i = 2 * threadIdx.x; i < count * pitch; i += 2 * blockDim.x) copy_async(to + i, from + i);
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
        const int2* column = columns + half * batch * pitch;
        if (shift == 0) {
            // A lane looks after one of the next columns.
            bool crosses = false, on_y = false;
            if (lane < min(strip, at.end - at.column)) {
                const i64 view = views[at.view];
                const double* table = tables + view * VIEW;
                const double* path = paths + (view * nu + at.column + lane) * PATH;
                on_y = path[AXIS] != 0.0;
                const int plane = (on_y ? y0 : x0) + warp;
                double t = path[FIRST] + plane * path[STEP];
                double g = path[START] + t * path[SLOPE] - (on_y ? x0 : y0), below = floor(g);
                crosses = t > 0.0 && below >= -1.0 && below < TILE && plane < (on_y ? ny : nx);
                if (crosses) {
                    double s = t * table[SCALE], spacing = 1.0 / s;
                    double start = table[MIDDLE] + (z0 - table[HEIGHT]) * spacing;
                    float share = (float)(g - below);
                    float scale = __int_as_float(sums[((i64)at.view * nu + at.column + lane) * pitch + nv + 1].x);
                    bool inside = start - spacing >= 1e-3 && start + DEPTH * spacing < nv - 1e-3;
                    passages[lane] = Passage{
                        start, spacing, (1.0f - share) * scale, share * scale, (float)s, 2 * (int)below + inside
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
                const Passage c = passages[shift + one];
                const int next = c.note >> 1;
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
                const int2* data = column + one * pitch;
                float2 given = c.note & 1
                    ? hat_sums<true>(data, c.start, c.spacing, c.rise, twice_lane, edge_number, lane, nv)
                    : hat_sums<false>(data, c.start, c.spacing, c.rise, twice_lane, edge_number, lane, nv);
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
