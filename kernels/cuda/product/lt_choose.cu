// SPDX-License-Identifier: Apache-2.0
// Which of cuBLASLt's algorithms multiplies so many rows by a weight fastest, timed on the device.
// What the library proposes is seldom the best that it has: of e4m3 scaled by rows and outputs it
// proposes one, on an H200 with 64 rows and 14336 by 4096 codes in 37.3 us where another takes
// 19.8. So those beside the best proposal, in other tiles, clusters and schedules, are timed, too.
#include <cuda/product/lt.h>

#include <algorithm>
#include <math.h>

namespace {

constexpr int PROPOSALS = 32;
constexpr size_t BEYOND_CACHE = size_t{128} << 20; // bytes of weights
constexpr size_t SEARCHED_BYTES = size_t{4} << 20; // of a weight: smaller products are over at once
constexpr int SEARCHED_ROWS = 1024; // of more rows proposals are good, and timing takes long
constexpr int FEW_PROPOSALS = 4;    // these are searched of more rows, too
constexpr float PATIENCE = 250;     // milliseconds of products, of a number of rows
constexpr int FINALISTS = 8;
constexpr int ENDS = 3; // the best whose clusters and schedules are tried

// Memory and events for timing one shape.
struct trial {
    void *x;
    char *weight; // several, so that none is in the cache when its turn comes
    size_t weight_bytes;
    size_t weight_count;
    void *y;
    void *workspace;
    cudaStream_t stream;
    cudaEvent_t begin;
    cudaEvent_t end;
};

// The bits that a pattern leaves are random. Why not one number everywhere: products of it take so
// little power that clocks stay higher than they do in a step, and another algorithm is the
// fastest.
struct pattern {
    uint32_t free;
    uint32_t set;
};

// Numbers of both signs that are neither tiny nor huge: of bf16 from 2^-7 to 2, of f16 and e4m3
// from 1 to 2; as scales, which are f32, codes are from 2^-15 to 1.
pattern pattern_of(berth_dtype dtype) {
    const uint64_t bits = BERTH_DTYPE_BITS(dtype);
    return bits == 8    ? pattern{0x87878787u, 0x38383838u}
           : bits == 16 ? pattern{0x83ff83ffu, 0x3c003c00u}
                        : pattern{0x83ffffffu, 0x3c000000u};
}

__global__ void fill_kernel(uint32_t *words, size_t count, pattern numbers) {
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
         i += size_t{gridDim.x} * blockDim.x) {
        uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
        words[i] = (static_cast<uint32_t>(x >> 32) & numbers.free) | numbers.set;
    }
}

bool fill(void *memory, size_t bytes, berth_dtype dtype) {
    fill_kernel<<<1024, 256>>>(static_cast<uint32_t *>(memory), bytes / 4, pattern_of(dtype));
    return cudaDeviceSynchronize() == cudaSuccess;
}

bool open_trial(const cuda_product &shape, int max_rows, trial *out) {
    const size_t bytes = BERTH_DTYPE_BITS(cuda_lt_operand(shape)) / 8;
    const size_t x = static_cast<size_t>(max_rows) * static_cast<size_t>(shape.depth) * bytes;
    const size_t y = static_cast<size_t>(max_rows) * static_cast<size_t>(shape.outputs) *
                     BERTH_DTYPE_BITS(shape.dtype) / 8;
    const size_t weight =
        static_cast<size_t>(shape.outputs) * static_cast<size_t>(shape.depth) * bytes;
    void *weights = nullptr;
    *out = trial{};
    out->weight_bytes = (weight + 255) / 256 * 256;
    out->weight_count = 1 + BEYOND_CACHE / weight;
    const bool is_there =
        cudaMalloc(&out->x, x) == cudaSuccess &&
        cudaMalloc(&weights, out->weight_count * out->weight_bytes) == cudaSuccess &&
        cudaMalloc(&out->y, y) == cudaSuccess &&
        cudaMalloc(&out->workspace, CUDA_LT_WORKSPACE) == cudaSuccess &&
        cudaEventCreate(&out->begin) == cudaSuccess && cudaEventCreate(&out->end) == cudaSuccess;
    out->weight = static_cast<char *>(weights);
    return is_there && fill(out->x, x, cuda_lt_operand(shape)) &&
           fill(weights, out->weight_count * out->weight_bytes, cuda_lt_operand(shape));
}

void close_trial(trial *self) {
    (void)cudaFree(self->x);
    (void)cudaFree(self->weight);
    (void)cudaFree(self->y);
    (void)cudaFree(self->workspace);
    if (self->begin) {
        (void)cudaEventDestroy(self->begin);
    }
    if (self->end) {
        (void)cudaEventDestroy(self->end);
    }
    (void)cudaGetLastError(); // a trial that has no room is no failure of what comes next
}

// An algorithm and its milliseconds.
struct candidate {
    cublasLtMatmulAlgo_t algorithm;
    float time;
};

bool is_faster(const candidate &a, const candidate &b) {
    return a.time < b.time;
}

// One number of rows: its product, and the fastest so far, in order.
struct contest {
    const cuda_lt *lt;
    const trial *room; // NULL: nothing is timed
    cuda_product product;
    cuda_lt_layouts with;
    candidate best[FINALISTS];
    int count;
    float spent; // milliseconds of all that was timed
};

bool is_short(const contest &of) {
    return of.product.rows <= SEARCHED_ROWS;
}

// Milliseconds of one of `runs`; negative when it cannot run.
float time_one(contest *of, const cublasLtMatmulAlgo_t &algorithm, size_t runs) {
    float milliseconds = -1;
    const trial &room = *of->room;
    cuda_product p = of->product;
    if (cuda_lt_multiply(of->lt, &of->with, p, &algorithm, room.workspace, room.stream) !=
        CUBLAS_STATUS_SUCCESS) {
        return milliseconds;
    }
    (void)cudaEventRecord(room.begin, room.stream);
    for (size_t run = 0; run < runs; ++run) {
        p.weight = room.weight + (run + 1) % room.weight_count * room.weight_bytes;
        (void)cuda_lt_multiply(of->lt, &of->with, p, &algorithm, room.workspace, room.stream);
    }
    (void)cudaEventRecord(room.end, room.stream);
    if (cudaEventSynchronize(room.end) != cudaSuccess ||
        cudaEventElapsedTime(&milliseconds, room.begin, room.end) != cudaSuccess) {
        return -1;
    }
    of->spent += milliseconds;
    return milliseconds / static_cast<float>(runs);
}

// Products of few rows are over so soon that they need more runs; one run tells who is far behind.
void enter(contest *of, const cublasLtMatmulAlgo_t &algorithm) {
    constexpr float FAR = 1.5f;
    const bool is_full = of->count == FINALISTS;
    const float last = is_full ? of->best[FINALISTS - 1].time : INFINITY;
    for (int i = 0; i < of->count; ++i) {
        if (memcmp(&of->best[i].algorithm, &algorithm, sizeof algorithm) == 0) {
            return;
        }
    }
    candidate one = {algorithm, time_one(of, algorithm, 1)};
    if (one.time >= 0 && one.time < last * FAR) {
        one.time = time_one(of, algorithm, is_short(*of) ? 5 : 2);
    }
    if (one.time < 0 || one.time >= last) {
        return;
    }
    of->count += !is_full;
    int at = of->count - 1;
    for (; at > 0 && is_faster(one, of->best[at - 1]); --at) {
        of->best[at] = of->best[at - 1];
    }
    of->best[at] = one;
}

// ---- beside what is proposed --------------------------------------------------------------------

struct tile {
    uint32_t id;
    int rows; // of y that it has
};

extern const tile TILES[];
extern const int TILE_COUNT;

// What an algorithm is made of, as far as it is varied.
struct variant {
    cublasLtMatmulAlgo_t algorithm;

    template <typename V>
    void set(const cuda_lt *lt, cublasLtMatmulAlgoConfigAttributes_t what, V value) {
        (void)lt->all->call.cublasLtMatmulAlgoConfigSetAttribute(&algorithm, what, &value,
                                                                 sizeof value);
    }
    int splits(const cuda_lt *lt) const {
        int32_t count = 1;
        size_t size = 0;
        (void)lt->all->call.cublasLtMatmulAlgoConfigGetAttribute(
            &algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &count, sizeof count, &size);
        return count;
    }
    // Parts of the depth are kept apart and added up in order: the same result every time.
    void split(const cuda_lt *lt, int32_t count) {
        const uint32_t scheme =
            count > 1 ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : CUBLASLT_REDUCTION_SCHEME_NONE;
        set(lt, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, count);
        set(lt, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, scheme);
    }
    void enter_if_taken(contest *in) {
        if (in->spent < PATIENCE &&
            cuda_lt_ask(in->lt, &in->with, &algorithm) == CUBLAS_STATUS_SUCCESS) {
            enter(in, algorithm);
        }
    }
};

// Tiles with few or several times as many rows as there are do needless work, or read the weight
// again and again.
bool is_sensible(const tile &one, int rows) {
    return one.rows <= 2 * rows && 4 * one.rows >= std::min(rows, 256);
}

void try_tiles(contest *in, const candidate &from, int32_t splits) {
    static const uint16_t CLUSTERS[] = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                        CUBLASLT_CLUSTER_SHAPE_1x2x1};
    for (int i = 0; i < TILE_COUNT; ++i) {
        if (!is_sensible(TILES[i], in->product.rows)) {
            continue;
        }
        for (const uint16_t cluster : CLUSTERS) {
            variant one = {from.algorithm};
            one.set(in->lt, CUBLASLT_ALGO_CONFIG_TILE_ID, TILES[i].id);
            one.set(in->lt, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster);
            one.split(in->lt, splits);
            one.enter_if_taken(in);
        }
    }
}

void try_schedules(contest *in, const candidate &from) {
    constexpr uint32_t SCHEDULES = 8;
    static const uint16_t CLUSTERS[] = {CUBLASLT_CLUSTER_SHAPE_1x1x1, CUBLASLT_CLUSTER_SHAPE_2x1x1,
                                        CUBLASLT_CLUSTER_SHAPE_4x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1,
                                        CUBLASLT_CLUSTER_SHAPE_2x2x1, CUBLASLT_CLUSTER_SHAPE_4x2x1,
                                        CUBLASLT_CLUSTER_SHAPE_1x4x1, CUBLASLT_CLUSTER_SHAPE_2x4x1};
    for (const uint16_t cluster : CLUSTERS) {
        for (uint32_t schedule = 0; schedule < SCHEDULES; ++schedule) {
            variant one = {from.algorithm};
            one.set(in->lt, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, cluster);
            one.set(in->lt, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, schedule);
            one.enter_if_taken(in);
        }
    }
}

// From the best proposal: first other tiles, undivided in depth, too, then of the best of these
// other clusters and schedules.
void search(contest *in) {
    const candidate from = in->best[0];
    const int splits = variant{from.algorithm}.splits(in->lt);
    candidate ends[ENDS];
    if (is_short(*in)) {
        try_tiles(in, from, splits);
        if (splits > 1) {
            try_tiles(in, from, 1);
        }
    }
    const int count = std::min(in->count, is_short(*in) ? ENDS : 1);
    std::copy(in->best, in->best + count, ends);
    for (int i = 0; i < count; ++i) {
        try_schedules(in, ends[i]);
    }
}

// ---- one number of rows -------------------------------------------------------------------------

// The first ones again in turns, each at its best. Why: within a few percent of each other they
// change places from one run to the next, as clocks fall where work is hard.
const candidate &settle(contest *of) {
    constexpr int TURNS = 4;
    constexpr float NEAR = 1.06f;
    candidate *all = of->best;
    int last = 1;
    while (last < of->count && all[last].time <= all[0].time * NEAR) {
        ++last;
    }
    for (int turn = 0; turn < (is_short(*of) ? TURNS : TURNS / 2) && last > 1; ++turn) {
        for (int i = 0; i < last; ++i) {
            const float time = time_one(of, all[i].algorithm, is_short(*of) ? 12 : 2);
            if (time >= 0) {
                all[i].time = turn == 0 ? time : std::min(all[i].time, time);
            }
        }
    }
    return *std::min_element(all, all + last, is_faster);
}

// Why not f32: its products take long, and use no tensor cores. Why not sums of e4m3: scaled at
// once they come out first, and a second search takes as long.
bool is_searched(const contest &of, int proposals) {
    const bool is_f32 = of.product.dtype == BERTH_DTYPE_F32;
    return of.count > 0 && !is_f32 && of.room->weight_bytes >= SEARCHED_BYTES &&
           (is_short(of) || proposals < FEW_PROPOSALS);
}

// The fastest for `rows`; without room to time them cuBLASLt's first proposal.
void choose(cuda_lt *lt, int rows, const trial *room) {
    cublasLtMatmulHeuristicResult_t results[PROPOSALS];
    contest of = {};
    cuda_product p = lt->shape;
    p.rows = rows;
    p.x = room ? room->x : nullptr;
    p.weight = room ? room->weight : nullptr;
    p.y = room ? room->y : nullptr;
    // Any numbers of the type will do; x and weight have more bytes than a scale for each row.
    p.bias = room && p.bias ? room->weight : p.bias;
    p.scales = room ? reinterpret_cast<const float *>(room->weight) : nullptr;
    p.x_scales = room ? static_cast<const float *>(room->x) : nullptr;
    of.lt = lt;
    of.room = room;
    of.product = p;
    if (cuda_lt_describe(lt, p, &of.with) != BERTH_OK) {
        return;
    }
    const int proposals = cuda_lt_propose(lt, &of.with, results, PROPOSALS);
    if (proposals == 0) {
        return;
    }
    for (int i = 0; i < proposals && room; ++i) {
        enter(&of, results[i].algo);
    }
    if (room && is_searched(of, proposals)) {
        search(&of);
    }
    const candidate best = of.count > 0 ? settle(&of) : candidate{results[0].algo, -1};
    cuda_choice *chosen = &lt->buckets[lt->count++];
    chosen->rows = rows;
    chosen->milliseconds = best.time;
    memcpy(chosen->algorithm, &best.algorithm, sizeof chosen->algorithm);
}

} // namespace

// Rows 16, 24, 32, 48, 64, 96, …, until a step cannot have more.
void cuda_lt_choose(const gpu_op *op, cuda_lt *lt, int max_rows) {
    trial room;
    const bool has_room = open_trial(lt->shape, max_rows, &room);
    room.stream = op->stream;
    int rows = 16;
    for (; rows < max_rows && lt->count < CUDA_CHOICES_MAX - 1;
         rows += (rows & (rows - 1)) == 0 ? rows / 2 : rows / 3) {
        choose(lt, rows, has_room ? &room : nullptr);
    }
    choose(lt, max_rows, has_room ? &room : nullptr);
    close_trial(&room);
}

// ---- tiles --------------------------------------------------------------------------------------

namespace {

#define TILE(outputs, rows)                                                                        \
    { CUBLASLT_MATMUL_TILE_##outputs##x##rows, rows }
#define TILES_64(outputs) TILE(outputs, 64), TILE(outputs, 128), TILE(outputs, 192)
#define TILES_16(outputs)                                                                          \
    TILE(outputs, 16), TILE(outputs, 24), TILE(outputs, 32), TILE(outputs, 48), TILE(outputs, 96), \
        TILES_64(outputs), TILE(outputs, 256)

// Those that were best most often come first, as a search may run out of time.
const tile TILES[] = {
    TILES_16(128), TILES_16(256), TILES_16(64),   TILES_16(192), TILES_64(96),
    TILE(96, 256), TILES_64(112), TILE(112, 256), TILES_64(224), TILES_64(160),
    TILES_64(80),  TILES_64(144), TILES_64(176),
};
const int TILE_COUNT = sizeof TILES / sizeof TILES[0];

} // namespace
