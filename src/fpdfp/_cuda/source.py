"""CUDA C for the GPU: the same draws, scales and levels as the kernels of :mod:`fpdfp._kernels`.

Compiled without contraction of products and sums, so that every operation rounds as it does on a processor.
"""

from __future__ import annotations

import functools
from typing import Any

SOURCE = r"""
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

enum { L2 = 0, LARGEST = 1, MEAN = 2, POWER = 3 };
enum { UNIFORM = 0, EXPONENTIAL = 1, COIN = 2, SIGN = 3 };
// 2^-960: below it a sum of squares may have lost digits.
#define SMALL 1.0261342003245941e-289

// ---- numbers between float and double, subnormal ones as they are: the compiler may be told to drop those ----

__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ double widen(float x) { double y; asm("cvt.f64.f32 %0, %1;" : "=d"(y) : "f"(x)); return y; }
__device__ __forceinline__ void narrow(double x, double& out) { out = x; }
__device__ __forceinline__ void narrow(double x, float& out) { asm("cvt.rn.f32.f64 %0, %1;" : "=f"(out) : "d"(x)); }
__device__ __forceinline__ float narrow_up(double x) {
    float y;
    asm("cvt.rp.f32.f64 %0, %1;" : "=f"(y) : "d"(x));
    return y;
}

// ---- Philox4x32-10 ----

struct Words { u32 w[4]; };

__device__ __forceinline__ Words philox(u32 c0, u32 c1, u32 c2, u32 c3, u32 k0, u32 k1) {
    #pragma unroll
    for (int i = 0; i < 10; ++i) {
        u32 h0 = __umulhi(c0, 0xD2511F53u), l0 = c0 * 0xD2511F53u;
        u32 h1 = __umulhi(c2, 0xCD9E8D57u), l1 = c2 * 0xCD9E8D57u;
        c0 = h1 ^ c1 ^ k0; c2 = h0 ^ c3 ^ k1; c1 = l1; c3 = l0;
        k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
    }
    return Words{{c0, c1, c2, c3}};
}

__device__ __forceinline__ double draw(u32 word) { return (word + 0.5) * (1.0 / 4294967296.0); }

extern "C" __global__ void fill_words(u32 k0, u32 k1, u32 tag, const i64* clients, u32 round, u32 size, u32* out) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x, group = t / 64, lane = t % 64;
    Words drawn = philox(t, tag, (u32)clients[blockIdx.y], round, k0, k1);
    for (int i = 0; i < 4; ++i) {
        u64 j = (u64)group * 256 + 64 * i + lane;
        if (j < size) out[(u64)blockIdx.y * size + j] = drawn.w[i];
    }
}

// ---- scales: pieces of 1024 entries, 64 lanes, a tree; then the pieces in the same way ----

__device__ __forceinline__ double term(int kind, double x) {
    x = fabs(x);
    return kind == L2 ? x * x : x;
}

// Larger, and NaN above everything: the order of the bits.
__device__ __forceinline__ double larger(double a, double b) {
    return __double_as_longlong(a) >= __double_as_longlong(b) ? a : b;
}

__device__ __forceinline__ double combine(int kind, double a, double b) {
    return kind == L2 || kind == MEAN ? a + b : larger(a, b);
}

__device__ __forceinline__ double tree(int kind, double a, double b) {
    a = combine(kind, a, b);
    for (int width = 16; width > 0; width /= 2) a = combine(kind, a, __shfl_down_sync(0xFFFFFFFFu, a, width));
    return a;
}

// The sum of a piece, by a warp; the first lane has it.
template <typename T>
__device__ __forceinline__ double piece_sum(int kind, double unit, const T* __restrict__ row, u32 size, u32 block,
                                            u32 b, u32 piece, u32 lane) {
    u64 begin = (u64)b * block + (u64)piece * 1024;
    u64 stop = min(min(begin + 1024, (u64)b * block + block), (u64)size);
    double a = 0.0, c = 0.0;
    if (begin + 1024 == stop) {
        T x[16], y[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) { x[i] = row[begin + 64 * i + lane]; y[i] = row[begin + 64 * i + lane + 32]; }
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a = combine(kind, a, term(kind, widen(x[i]) * unit));
            c = combine(kind, c, term(kind, widen(y[i]) * unit));
        }
    } else {
        for (u64 j = begin + lane; j < stop; j += 64) a = combine(kind, a, term(kind, widen(row[j]) * unit));
        for (u64 j = begin + lane + 32; j < stop; j += 64) c = combine(kind, c, term(kind, widen(row[j]) * unit));
    }
    return tree(kind, a, c);
}

// The sum over the pieces of a block, by a warp; the first lane has it.
__device__ __forceinline__ double pieces_sum(int kind, const double* sums, u32 pieces, u32 lane) {
    double a = 0.0, c = 0.0;
    for (u32 p = lane; p < pieces; p += 64) a = combine(kind, a, sums[p]);
    for (u32 p = lane + 32; p < pieces; p += 64) c = combine(kind, c, sums[p]);
    return tree(kind, a, c);
}

// Write the scale of a block. Where a sum of squares is too small to be right, a second call with a larger unit
// replaces it.
__device__ __forceinline__ void finish(int kind, double unit, double scale, u32 size, u32 block, u32 b, u64 t,
                                       double* sums, float* scales) {
    if (unit == 1.0) sums[t] = scale;
    else if (!(sums[t] < SMALL)) return;
    if (kind == L2) scale = sqrt(scale) / unit;
    if (kind == MEAN) scale /= (double)min(block, size - b * block);
    if (kind == POWER && scale > 0.0 && scale < 1.0 / 0.0) {
        int exponent;
        double mantissa = frexp(scale, &exponent);
        scale = ldexp(1.0, max(mantissa == 0.5 ? exponent - 1 : exponent, -149));
    }
    scales[t] = narrow_up(scale);
}

// Blocks of one piece: a warp for each.
template <typename T>
__global__ void short_scales(int kind, double unit, const T* values, u32 size, u32 block, u32 blocks, double* sums,
                             float* scales) {
    u32 b = (u32)(((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32), lane = threadIdx.x % 32;
    if (b >= blocks) return;
    double sum = piece_sum(kind, unit, values + (u64)blockIdx.y * size, size, block, b, 0, lane);
    if (lane == 0) finish(kind, unit, sum, size, block, b, (u64)blockIdx.y * blocks + b, sums, scales);
}

// Blocks of a few hundred pieces: a group of warps for each.
template <typename T>
__global__ void middle_scales(int kind, double unit, const T* values, u32 size, u32 block, u32 pieces, u32 blocks,
                              double* sums, float* scales) {
    __shared__ double partial[512];
    u32 b = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (u32 piece = warp; piece < pieces; piece += blockDim.x / 32) {
        double sum = piece_sum(kind, unit, values + (u64)blockIdx.y * size, size, block, b, piece, lane);
        if (lane == 0) partial[piece] = sum;
    }
    __syncthreads();
    if (warp > 0) return;
    double sum = pieces_sum(kind, partial, pieces, lane);
    if (lane == 0) finish(kind, unit, sum, size, block, b, (u64)blockIdx.y * blocks + b, sums, scales);
}

// Longer ones: a warp for each piece, and then one for each block.
template <typename T>
__global__ void piece_sums(int kind, double unit, const T* values, u32 size, u32 block, u32 pieces, u32 blocks,
                           double* out) {
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32;
    if (warp >= (u64)blocks * pieces) return;
    const T* row = values + (u64)blockIdx.y * size;
    double sum = piece_sum(kind, unit, row, size, block, (u32)(warp / pieces), (u32)(warp % pieces), lane);
    if (lane == 0) out[(u64)blockIdx.y * blocks * pieces + warp] = sum;
}

extern "C" __global__ void long_scales(int kind, double unit, const double* partial, u32 size, u32 block, u32 pieces,
                                       u32 blocks, double* sums, float* scales) {
    u32 b = (u32)(((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32), lane = threadIdx.x % 32;
    if (b >= blocks) return;
    u64 t = (u64)blockIdx.y * blocks + b;
    double sum = pieces_sum(kind, partial + t * pieces, pieces, lane);
    if (lane == 0) finish(kind, unit, sum, size, block, b, t, sums, scales);
}

// ---- rounding to levels ----

__device__ __forceinline__ bool aligned(const void* p) { return (u64)p % 16 == 0; }

// Four numbers in a row, of which ``left`` are there.
template <typename T>
__device__ __forceinline__ void load4(const T* p, i64 left, T (&out)[4]) {
    if (left >= 4 && aligned(p)) {
        #pragma unroll
        for (int i = 0; i < (int)sizeof(T) / 4; ++i) ((int4*)out)[i] = ((const int4*)p)[i];
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i) out[i] = i < left ? p[i] : (T)0;
    }
}

template <typename T>
__device__ __forceinline__ void store4(T* p, i64 left, const T (&in)[4]) {
    if (left >= 4 && aligned(p)) {
        #pragma unroll
        for (int i = 0; i < (int)sizeof(T) / 4; ++i) ((int4*)p)[i] = ((const int4*)in)[i];
    } else {
        #pragma unroll
        for (int i = 0; i < 4; ++i) if (i < left) p[i] = in[i];
    }
}

// The scale of the block that holds an entry, kept until an entry of another block comes.
struct Scale {
    const float* scales;
    u32 block;
    u64 end;
    double norm, ratio;

    __device__ __forceinline__ Scale(const float* row, u32 block)
        : scales(row), block(block), end(0), norm(0.0), ratio(0.0) {}

    // ``inverse``: keep s / norm, else norm / s.
    __device__ __forceinline__ void move_to(u64 j, int s, bool inverse) {
        if (j < end) return;
        u32 b = (u32)j / block;
        norm = widen(scales[b]);
        ratio = inverse ? s / norm : norm / s;
        end = (u64)(b + 1) * block;
    }
};

template <int ROUNDING>
__device__ __forceinline__ int round_one(double value, u32 word, double norm, double factor, int s, double finest) {
    if (!(norm > 0.0 && norm < 1.0 / 0.0)) return 0;
    if (ROUNDING == UNIFORM) {
        double scaled = fmin(fabs(value) * factor, (double)s);
        double level = floor(scaled);
        int size = (int)level + (draw(word) < scaled - level ? 1 : 0);
        return value < 0 ? -size : size;
    }
    if (ROUNDING == EXPONENTIAL) {
        double ratio = fabs(value) / norm;
        u64 bits = (u64)__double_as_longlong(ratio);
        int halvings = 1023 - (int)(bits >> 52), level;
        if (halvings < s) {
            u32 chance = (u32)(bits >> 20);
            level = max(halvings, 0) + (halvings <= 0 || word >= chance ? 1 : 0);
        } else {
            level = draw(word) < ratio * finest ? s : 0;
        }
        return value < 0 ? -level : level;
    }
    if (ROUNDING == COIN) return draw(word) < 0.5 + 0.5 * (value / norm) ? 0 : -1;
    return value < 0 ? -1 : 0;
}

// A thread takes four of the 64 lanes of a group of 256 entries: sixteen entries, in four runs of four.
template <typename T, int ROUNDING>
__global__ void quantize(const T* __restrict__ values, u32 size, u32 block, u32 blocks, int s, u32 k0, u32 k1, u32 tag,
                         const i64* __restrict__ clients, u32 round, const float* __restrict__ scales,
                         int* __restrict__ levels) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    u64 first = (u64)(t / 16) * 256 + 4 * (t % 16);
    if (first >= size) return;
    const T* row = values + (u64)blockIdx.y * size;
    __align__(16) T x[4][4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) load4(row + first + 64 * i, (i64)size - (i64)(first + 64 * i), x[i]);
    Words drawn[4];
    if (ROUNDING != SIGN) {
        u32 client = (u32)clients[blockIdx.y];
        #pragma unroll
        for (int l = 0; l < 4; ++l) drawn[l] = philox(4 * t + l, tag, client, round, k0, k1);
    }
    double finest = ROUNDING == EXPONENTIAL ? ldexp(1.0, s - 1) : 0.0;
    Scale scale(scales + (u64)blockIdx.y * blocks, block);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        u64 at = first + 64 * i;
        if (at >= size) return;
        __align__(16) int level[4];
        #pragma unroll
        for (int l = 0; l < 4; ++l) {
            if (at + l < size) scale.move_to(at + l, s, true);
            u32 word = ROUNDING != SIGN ? drawn[l].w[i] : 0;
            level[l] = round_one<ROUNDING>(widen(x[i][l]), word, scale.norm, scale.ratio, s, finest);
        }
        store4(levels + (u64)blockIdx.y * size + at, (i64)size - (i64)at, level);
    }
}

template <typename T, int ROUNDING>
__global__ void dequantize(const int* __restrict__ levels, const float* __restrict__ scales, u32 size, u32 block,
                           u32 blocks, int s, T* __restrict__ out) {
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (first >= size) return;
    __align__(16) int level[4];
    __align__(16) T value[4];
    load4(levels + (u64)blockIdx.y * size + first, (i64)size - (i64)first, level);
    Scale scale(scales + (u64)blockIdx.y * blocks, block);
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i < size) scale.move_to(first + i, s, false);
        double x;
        if (ROUNDING == UNIFORM) x = scale.ratio * level[i];
        else if (ROUNDING == EXPONENTIAL) {
            x = level[i] != 0 ? scale.norm * ldexp(1.0, 1 - abs(level[i])) : 0.0;
            x = level[i] < 0 ? -x : x;
        } else x = scale.norm * (1 + 2 * level[i]);
        narrow(x, value[i]);
    }
    store4(out + (u64)blockIdx.y * size + first, (i64)size - (i64)first, value);
}

// ---- 16-bit numbers ----

template <typename T>
__global__ void half_numbers(int random, int digits, int lowest, int infinity, const T* values, u32 size, u32 k0,
                             u32 k1, u32 tag, const i64* clients, u32 round, u16* codes, int* bad) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    u64 first = (u64)(t / 64) * 256 + t % 64;
    if (first >= size) return;
    Words drawn = Words();
    if (random) drawn = philox(t, tag, (u32)clients[blockIdx.y], round, k0, k1);
    for (int i = 0; i < 4; ++i) {
        u64 j = first + 64 * i;
        if (j >= size) break;
        double value = widen(values[(u64)blockIdx.y * size + j]);
        double x = fabs(value);
        if (!(x < 1.0 / 0.0)) { bad[blockIdx.y] = 1; continue; }
        int exponent = lowest;
        if (x > 0.0) { frexp(x, &exponent); exponent = max(exponent - 1, lowest); }
        double scaled = ldexp(x, digits - exponent), whole = floor(scaled), rest = scaled - whole;
        bool up = random ? draw(drawn.w[i]) < rest : rest > 0.5 || (rest == 0.5 && (i64)whole % 2 == 1);
        int code = ((exponent - lowest) << digits) + (int)whole + (up ? 1 : 0);
        if (code >= infinity) bad[blockIdx.y] = 1;
        codes[(u64)blockIdx.y * size + j] = (u16)(code | (value < 0 ? 0x8000 : 0));
    }
}

template <typename S, typename T>
__global__ void multiply(const S* values, u64 size, double factor, T* out) {
    u64 j = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (j < size) narrow(widen(values[j]) * factor, out[j]);
}

// ---- levels in a fixed number of bits ----

extern "C" __global__ void pack_fixed(const int* levels, u64 size, int lowest, u32 width, u64 words, u32* out) {
    u64 word = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    u64 bit = word * 32, j = bit / width;
    int at = (int)(i64)(j * width - bit);
    u64 pending = 0;
    for (; at < 32 && j < size; at += width, ++j) {
        u64 code = (u32)levels[j] - (u32)lowest;
        pending |= at < 0 ? code >> -at : code << at;
    }
    out[word] = (u32)pending;
}

extern "C" __global__ void unpack_fixed(const u32* __restrict__ words, u64 size, int lowest, int highest, u32 width,
                                        int* __restrict__ levels, int* bad) {
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (first >= size) return;
    u64 mask = (1ull << width) - 1;
    __align__(16) int level[4];
    bool wrong = false;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i >= size) break;
        u64 bit = (first + i) * width, at = bit / 32;
        u64 pair = words[at] | (u64)words[at + 1] << 32;
        i64 one = (i64)lowest + (i64)(pair >> (bit % 32) & mask);
        wrong = wrong || one > highest;
        level[i] = (int)one;
    }
    if (wrong) *bad = 1;
    store4(levels + first, (i64)(size - first), level);
}

// ---- the lengths of codes ----

__device__ __forceinline__ u32 unsigned_of(int level) { return ((u32)level << 1) ^ (u32)(level >> 31); }

__device__ __forceinline__ u64 warp_sum(u64 x) {
    for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, width);
    return x;
}

extern "C" __global__ void sum_numbers(const int* levels, u64 size, u64* total) {
    u64 sum = 0;
    for (u64 j = (u64)blockIdx.x * blockDim.x + threadIdx.x; j < size; j += (u64)gridDim.x * blockDim.x)
        sum += unsigned_of(levels[j]);
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

// The levels of every 16384 by their digits and the second digit. A block of threads goes through 4096 levels.
extern "C" __global__ void sort_levels(const int* levels, u64 size, u32* sorts) {
    __shared__ u32 table[64];
    if (threadIdx.x < 64) table[threadIdx.x] = 0;
    __syncthreads();
    u64 begin = (u64)blockIdx.x * 4096, end = min(begin + 4096, size);
    for (u64 j = begin + threadIdx.x; j < end; j += blockDim.x) {
        u32 magnitude = levels[j] < 0 ? 0u - (u32)levels[j] : (u32)levels[j];
        u32 digits = 32 - __clz(magnitude);
        u32 second = digits > 1 ? magnitude >> (digits - 2) & 1 : 0;
        atomicAdd(table + 2 * digits + second, 1u);
    }
    __syncthreads();
    if (threadIdx.x < 64 && table[threadIdx.x]) atomicAdd(sorts + begin / 16384 * 64 + threadIdx.x, table[threadIdx.x]);
}

extern "C" __global__ void count_tokens(const int* levels, u64 size, int shift, u64* counts) {
    __shared__ u32 table[8][256];
    for (int i = threadIdx.x; i < 8 * 256; i += blockDim.x) ((u32*)table)[i] = 0;
    __syncthreads();
    u32* mine = table[threadIdx.x / 32 % 8];
    for (u64 j = (u64)blockIdx.x * blockDim.x + threadIdx.x; j < size; j += (u64)gridDim.x * blockDim.x) {
        i64 token = ((i64)levels[j] >> shift) + 127;
        atomicAdd(mine + (token >= 0 && token < 255 ? token : 255), 1u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        u64 sum = 0;
        for (int w = 0; w < 8; ++w) sum += table[w][i];
        if (sum) atomicAdd(counts + i, sum);
    }
}

__device__ __forceinline__ u32 omega_length(u64 k) {
    u32 length = 1;
    while (k > 1) { u32 digits = 64 - __clzll(k); length += digits; k = digits - 1; }
    return length;
}

// Totals: dense, sparse (but for the count in front), non-zero levels.
// A warp goes through 1024 levels in a row; where the last non-zero one before them is, it is told.
extern "C" __global__ void elias_lengths(const int* levels, u64 size, const i64* before, u64* totals) {
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32;
    u64 begin = warp * 1024;
    if (begin >= size) return;
    i64 last = before[warp];
    u64 sums[3] = {0, 0, 0};
    for (u64 base = begin; base < min(begin + 1024, size); base += 32) {
        u64 j = base + lane;
        int level = j < size ? levels[j] : 0;
        u64 magnitude = level < 0 ? -(i64)level : (i64)level;
        if (j < size) sums[0] += omega_length(magnitude + 1) + (magnitude > 0);
        u32 occupied = __ballot_sync(0xFFFFFFFFu, magnitude > 0);
        if (magnitude > 0) {
            u32 lower = occupied & ((1u << lane) - 1);
            i64 previous = lower ? (i64)base + 31 - __clz(lower) : last;
            u64 gap = (i64)j - previous;
            sums[1] += 1 + omega_length(gap) + omega_length(magnitude);
            sums[2] += 1;
        }
        if (occupied) last = (i64)base + 31 - __clz(occupied);
    }
    for (int i = 0; i < 3; ++i) {
        u64 sum = warp_sum(sums[i]);
        if (lane == 0) atomicAdd(totals + i, sum);
    }
}

// The place of the last non-zero one of every 1024 levels, −1 if there is none.
extern "C" __global__ void last_nonzero(const int* levels, u64 size, i64* out) {
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32;
    u64 begin = warp * 1024;
    if (begin >= size) return;
    i64 last = -1;
    for (u64 j = begin + lane; j < min(begin + 1024, size); j += 32) if (levels[j] != 0) last = j;
    for (int width = 16; width > 0; width /= 2) last = max(last, __shfl_xor_sync(0xFFFFFFFFu, last, width));
    if (lane == 0) out[warp] = last;
}
"""

#: By the characters of the dtypes: their names take NumPy microseconds to find.
C_NAMES = {"f": "float", "d": "double"}
#: The kernels that are made for several types, and roundings, with those.
INSTANCES = (
    *(
        f"{name}<{kind}>"
        for name in ("short_scales", "middle_scales", "piece_sums", "half_numbers")
        for kind in C_NAMES.values()
    ),
    *(
        f"{name}<{kind}, {rounding}>"
        for name in ("quantize", "dequantize")
        for kind in C_NAMES.values()
        for rounding in range(4)
    ),
    *(f"multiply<{pair}>" for pair in ("float, float", "float, double", "double, double")),
)


@functools.cache
def _module() -> Any:
    import cupy

    return cupy.RawModule(code=SOURCE, options=("--std=c++14", "--fmad=false"), name_expressions=INSTANCES)


@functools.cache
def kernel(name: str, *of: str | int) -> Any:
    """Return a kernel for some dtypes or roundings, compiled at its first use on this machine and kept by CuPy."""
    arguments = ", ".join(C_NAMES[one] if isinstance(one, str) else str(one) for one in of)
    return _module().get_function(f"{name}<{arguments}>" if of else name)
