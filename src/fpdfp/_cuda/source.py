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

// A warp for each piece of each block.
template <typename T>
__global__ void piece_sums(int kind, double unit, const T* values, u32 size, u32 block, u32 pieces, u32 blocks,
                           double* out) {
    u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (warp >= blocks * pieces) return;
    u32 b = warp / pieces, piece = warp % pieces;
    u64 begin = (u64)b * block + (u64)piece * 1024;
    u64 stop = min(min(begin + 1024, (u64)b * block + block), (u64)size);
    const T* row = values + (u64)blockIdx.y * size;
    double a = 0.0, c = 0.0;
    if (begin + 1024 == stop) {
        T x[16], y[16];
        #pragma unroll
        for (int i = 0; i < 16; ++i) { x[i] = row[begin + 64 * i + lane]; y[i] = row[begin + 64 * i + lane + 32]; }
        #pragma unroll
        for (int i = 0; i < 16; ++i) {
            a = combine(kind, a, term(kind, (double)x[i] * unit));
            c = combine(kind, c, term(kind, (double)y[i] * unit));
        }
    } else {
        for (u64 j = begin + lane; j < stop; j += 64) a = combine(kind, a, term(kind, (double)row[j] * unit));
        for (u64 j = begin + lane + 32; j < stop; j += 64) c = combine(kind, c, term(kind, (double)row[j] * unit));
    }
    a = tree(kind, a, c);
    if (lane == 0) out[(u64)blockIdx.y * blocks * pieces + warp] = a;
}

// A warp for each block.
extern "C" __global__ void block_sums(int kind, const double* in, u32 pieces, u32 blocks, double* out) {
    u32 b = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (b >= blocks) return;
    const double* row = in + ((u64)blockIdx.y * blocks + b) * pieces;
    double a = 0.0, c = 0.0;
    for (u32 p = lane; p < pieces; p += 64) a = combine(kind, a, row[p]);
    for (u32 p = lane + 32; p < pieces; p += 64) c = combine(kind, c, row[p]);
    a = tree(kind, a, c);
    if (lane == 0) out[(u64)blockIdx.y * blocks + b] = a;
}

extern "C" __global__ void finish_scales(int kind, double unit, const double* sums, u32 size, u32 block, u32 blocks,
                                         u32 rows, float* scales) {
    u64 t = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= (u64)blocks * rows) return;
    u32 b = t % blocks;
    double scale = sums[t];
    if (kind == L2) scale = sqrt(scale) / unit;
    if (kind == MEAN) scale /= (double)min(block, size - b * block);
    if (kind == POWER && scale > 0.0 && scale < 1.0 / 0.0) {
        int exponent;
        double mantissa = frexp(scale, &exponent);
        scale = ldexp(1.0, max(mantissa == 0.5 ? exponent - 1 : exponent, -149));
    }
    scales[t] = __double2float_ru(scale);
}

// ---- rounding to levels ----

template <typename T>
__device__ __forceinline__ int round_one(int rounding, T value, u32 word, double norm, double factor, int s,
                                         double finest) {
    if (rounding == UNIFORM) {
        double scaled = fmin(fabs((double)value) * factor, (double)s);
        double level = floor(scaled);
        int size = (int)level + (draw(word) < scaled - level ? 1 : 0);
        return value < 0 ? -size : size;
    }
    if (rounding == EXPONENTIAL) {
        double ratio = fabs((double)value) / norm;
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
    if (rounding == COIN) return draw(word) < 0.5 + 0.5 * ((double)value / norm) ? 0 : -1;
    return value < 0 ? -1 : 0;
}

template <typename T>
__global__ void quantize(int rounding, const T* values, u32 size, u32 block, u32 blocks, int s, u32 k0, u32 k1,
                         u32 tag, const i64* clients, u32 round, const float* scales, int* levels) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    u64 first = (u64)(t / 64) * 256 + t % 64;
    if (first >= size) return;
    const T* row = values + (u64)blockIdx.y * size;
    T x[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = first + 64 * i < size ? row[first + 64 * i] : (T)0;
    Words drawn = Words();
    if (rounding != SIGN) drawn = philox(t, tag, (u32)clients[blockIdx.y], round, k0, k1);
    double finest = rounding == EXPONENTIAL ? ldexp(1.0, s - 1) : 0.0;
    u32 last = 0xFFFFFFFFu;
    double norm = 0.0, factor = 0.0;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        u64 j = first + 64 * i;
        if (j >= size) break;
        u32 b = (u32)j / block;
        if (b != last) {
            norm = scales[(u64)blockIdx.y * blocks + b];
            factor = s / norm;
            last = b;
        }
        int level = 0;
        if (norm > 0.0 && norm < 1.0 / 0.0) level = round_one(rounding, x[i], drawn.w[i], norm, factor, s, finest);
        levels[(u64)blockIdx.y * size + j] = level;
    }
}

template <typename T>
__global__ void dequantize(int rounding, const int* levels, const float* scales, u32 size, u32 block, u32 blocks,
                           int s, T* out) {
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (first >= size) return;
    const int* row = levels + (u64)blockIdx.y * size;
    T* target = out + (u64)blockIdx.y * size;
    int level[4];
    bool whole = first + 4 <= size && size % 4 == 0;
    if (whole) *(int4*)level = *(const int4*)(row + first);
    else for (int i = 0; i < 4; ++i) level[i] = first + i < size ? row[first + i] : 0;
    T value[4];
    u32 last = 0xFFFFFFFFu;
    double norm = 0.0, unit = 0.0;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (first + i >= size) break;
        u32 b = ((u32)first + i) / block;
        if (b != last) {
            norm = scales[(u64)blockIdx.y * blocks + b];
            unit = norm / s;
            last = b;
        }
        double x;
        if (rounding == UNIFORM) x = unit * level[i];
        else if (rounding == EXPONENTIAL) {
            x = level[i] != 0 ? norm * ldexp(1.0, 1 - abs(level[i])) : 0.0;
            x = level[i] < 0 ? -x : x;
        } else x = norm * (1 + 2 * level[i]);
        value[i] = (T)x;
    }
    if (whole && sizeof(T) == 4) *(int4*)(target + first) = *(int4*)value;
    else for (int i = 0; i < 4 && first + i < size; ++i) target[first + i] = value[i];
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
        T value = values[(u64)blockIdx.y * size + j];
        double x = fabs((double)value);
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

// ---- levels in a fixed number of bits ----

extern "C" __global__ void pack_fixed(const int* levels, u64 size, int lowest, u32 width, u64 words, u32* out) {
    u64 word = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    u64 bit = word * 32, j = bit / width;
    int at = (int)(j * width) - (int)bit;
    u64 pending = 0;
    for (; at < 32 && j < size; at += width, ++j) {
        u64 code = (u32)levels[j] - (u32)lowest;
        pending |= at < 0 ? code >> -at : code << at;
    }
    out[word] = (u32)pending;
}

extern "C" __global__ void unpack_fixed(const u32* words, u64 size, int lowest, int highest, u32 width, int* levels,
                                        int* bad) {
    u64 first = ((u64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
    u64 mask = (1ull << width) - 1;
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
        u64 j = first + i;
        if (j >= size) return;
        u64 bit = j * width, at = bit / 32;
        u64 pair = words[at] | (u64)words[at + 1] << 32;
        i64 level = (i64)lowest + (i64)(pair >> (bit % 32) & mask);
        if (level > highest) *bad = 1;
        levels[j] = (int)level;
    }
}

// ---- the lengths of codes ----

__device__ __forceinline__ u32 unsigned_of(int level) { return ((u32)level << 1) ^ (u32)(level >> 31); }

__device__ __forceinline__ u32 warp_sum(u32 x) {
    for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, width);
    return x;
}

__device__ __forceinline__ u64 warp_sum(u64 x) {
    for (int width = 16; width > 0; width /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, width);
    return x;
}

// Entries past the end are zeros, which add nothing.
__device__ u32 rice_length(const u32 (&u)[16], u32 many, int k) {
    u32 total = 0;
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        u32 quotient = u[i] >> k;
        total += quotient < 20 ? quotient : 51 - k;
    }
    return warp_sum(total) + many * (k + 1);
}

// A warp for every 512 levels: the best parameter, found as on a processor.
extern "C" __global__ void rice_lengths(const int* levels, u64 size, u64* totals) {
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32;
    u64 begin = warp * 512;
    if (begin >= size) return;
    u32 many = (u32)min((u64)512, size - begin);
    u32 u[16];
    u64 sum = 0;
    #pragma unroll
    for (int i = 0; i < 16; ++i) {
        u32 j = lane + 32 * i;
        u[i] = j < many ? unsigned_of(levels[begin + j]) : 0;
        sum += u[i];
    }
    sum = warp_sum(sum);
    u64 length = 5;
    if (sum > 0) {
        u64 mean = sum / many;
        int k = min(max(63 - __clzll(mean), 0), 30), best = -1, step = -1;
        u32 shortest = 0xFFFFFFFFu;
        while (true) {
            u32 tried = k >= 0 && k < 31 ? rice_length(u, many, k) : shortest;
            if (tried < shortest) { best = k; shortest = tried; }
            else if (step == 1) break;
            else { step = 1; k = best; }
            k += step;
        }
        length += shortest;
    }
    if (lane == 0) { atomicAdd(totals, length); atomicAdd(totals + 1, sum); }
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

__device__ __forceinline__ u32 gamma_length(u64 k) { return 2 * (64 - __clzll(k)) - 1; }

__device__ __forceinline__ u32 omega_length(u64 k) {
    u32 length = 1;
    while (k > 1) { u32 digits = 64 - __clzll(k); length += digits; k = digits - 1; }
    return length;
}

// Totals: dense gamma, dense omega, sparse gamma, sparse omega (but for the count in front), non-zero levels.
// A warp goes through 1024 levels in a row; where the last non-zero one before them is, it is told.
extern "C" __global__ void elias_lengths(const int* levels, u64 size, const i64* before, u64* totals) {
    u64 warp = ((u64)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    u32 lane = threadIdx.x % 32;
    u64 begin = warp * 1024;
    if (begin >= size) return;
    i64 last = before[warp];
    u64 sums[5] = {0, 0, 0, 0, 0};
    for (u64 base = begin; base < min(begin + 1024, size); base += 32) {
        u64 j = base + lane;
        int level = j < size ? levels[j] : 0;
        u64 magnitude = level < 0 ? -(i64)level : (i64)level;
        if (j < size) {
            sums[0] += gamma_length(magnitude + 1) + (magnitude > 0);
            sums[1] += omega_length(magnitude + 1) + (magnitude > 0);
        }
        u32 occupied = __ballot_sync(0xFFFFFFFFu, magnitude > 0);
        if (magnitude > 0) {
            u32 lower = occupied & ((1u << lane) - 1);
            i64 previous = lower ? (i64)base + 31 - __clz(lower) : last;
            u64 gap = (i64)j - previous;
            sums[2] += 1 + gamma_length(gap) + gamma_length(magnitude);
            sums[3] += 1 + omega_length(gap) + omega_length(magnitude);
            sums[4] += 1;
        }
        if (occupied) last = (i64)base + 31 - __clz(occupied);
    }
    for (int i = 0; i < 5; ++i) {
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

TEMPLATES = ("piece_sums", "quantize", "dequantize", "half_numbers")
C_NAMES = {"float32": "float", "float64": "double"}


@functools.cache
def _module() -> Any:
    import cupy

    names = tuple(f"{name}<{kind}>" for name in TEMPLATES for kind in C_NAMES.values())
    return cupy.RawModule(code=SOURCE, options=("--std=c++14", "--fmad=false"), name_expressions=names)


@functools.cache
def kernel(name: str, dtype: str | None = None) -> Any:
    """Return a kernel, compiled at its first use on this machine and then cached by CuPy."""
    return _module().get_function(name if dtype is None else f"{name}<{C_NAMES[dtype]}>")
