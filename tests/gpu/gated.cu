// SPDX-License-Identifier: Apache-2.0
// The gated product of platform-cuda at Llama-3-8B's size, beside linear and its activation as two
// kernels. First both results, and the same one's bits again and again, at every kind of tile; then
// both times, in turns, and the limits that the tile is between: the weights' bytes beside a copy
// and the arithmetic beside the product of 8192 by 8192 by 8192. Prints one line a number of rows;
// status 1 where results differ.
//
// `gated [ROWS…]`: only compares and times these.
#include <cuda/product/gated.h>
#include <cuda/product/linear.h>
#include <gpu/silu_and_mul.h>

#include "bench.cuh"

namespace {

constexpr int LAYERS = 4; // whose weights are far beyond the second cache
constexpr int HIDDEN = 4096;
constexpr int INNER = 14336;
constexpr int MOST_ROWS = CUDA_GATED_ROWS;
constexpr int RUNS = 300; // of a recording, in a sample

struct bench {
    gpu_op op;
    cuda_linear linear;
    char *weights;
    void *x;
    void *product;
    void *y[2]; // of two kernels, and of one
    void *room;

    bench() : op{&host, &gpu, 0, gpu.streams[0]}, linear{} {
        site_of site;
        site.types = {type_of(BERTH_DTYPE_BF16, {MOST_ROWS, HIDDEN}, BERTH_SYMBOL_TOKENS),
                      type_of(BERTH_DTYPE_BF16, {2 * INNER, HIDDEN}, 0), berth_value_type{}};
        must(cuda_linear_open(&op, site.finish(MOST_ROWS, MOST_ROWS), &linear) == BERTH_OK,
             "linear");
        weights = static_cast<char *>(make(LAYERS * bytes()));
        x = make(size_t{MOST_ROWS} * HIDDEN * 2, 2.0f);
        product = make(size_t{MOST_ROWS} * 2 * INNER * 2);
        y[0] = make(size_t{MOST_ROWS} * INNER * 2);
        y[1] = make(size_t{MOST_ROWS} * INNER * 2);
        room = make(CUDA_LT_WORKSPACE);
    }
    static size_t bytes() {
        return size_t{2 * INNER} * HIDDEN * 2;
    }
    const void *weight(int layer) const {
        return weights + layer % LAYERS * bytes();
    }
    void run_two(int rows, int layer) const {
        cuda_product p = {};
        p.x = x;
        p.weight = weight(layer);
        p.y = product;
        p.x_gap = HIDDEN;
        p.y_gap = 2 * INNER;
        p.rows = rows;
        p.outputs = 2 * INNER;
        p.depth = HIDDEN;
        p.dtype = BERTH_DTYPE_BF16;
        const gpu_rows both = {static_cast<char *>(product), 1, 4 * INNER, 0};
        const gpu_rows to = {static_cast<char *>(y[0]), 1, 2 * INNER, 0};
        must(cuda_linear_run(&op, linear, p, room) == BERTH_OK &&
                 gpu_silu_and_mul_run(&op, p.dtype, both, to, rows, INNER) == BERTH_OK,
             "two kernels");
    }
    void run_one(int rows, int layer) const {
        cuda_gated all = {};
        all.rows = rows;
        all.outputs = INNER;
        all.bytes = HIDDEN * 2;
        all.x = x;
        all.x_gap = HIDDEN * 2;
        all.weight = weight(layer);
        all.y = y[1];
        all.y_gap = INNER;
        must(cuda_gated_run(&op, all, BERTH_DTYPE_BF16) == BERTH_OK, "one kernel");
    }
};

std::vector<uint16_t> read(const void *from, int rows) {
    std::vector<uint16_t> all(size_t(rows) * INNER);
    must(cudaDeviceSynchronize() == cudaSuccess &&
             cudaMemcpy(all.data(), from, all.size() * 2, cudaMemcpyDeviceToHost) == cudaSuccess,
         "reading");
    return all;
}

bool is_right(const bench &b, int rows) {
    constexpr int TIMES = 50;
    constexpr double CLOSE = 1.0 / 64;
    b.run_two(rows, 0);
    b.run_one(rows, 0);
    const std::vector<uint16_t> one = read(b.y[1], rows);
    const double apart = distance_of(one, read(b.y[0], rows));
    int others = 0;
    for (int i = 0; i < TIMES; ++i) {
        must(cudaMemset(b.y[1], 0xff, one.size() * 2) == cudaSuccess, "poison");
        b.run_one(rows, 0);
        others += read(b.y[1], rows) != one;
    }
    const bool is_good = apart < CLOSE && others == 0;
    printf("%4d rows: apart %.5f, %d of %d times other bits%s\n", rows, apart, others, TIMES,
           is_good ? "" : "  WRONG");
    return is_good;
}

// In a recording, for so long that the device comes to the clock that its power allows.
template <typename F> double seconds_recorded(F call) {
    constexpr int TIMES = 4 * LAYERS;
    cudaGraph_t made = nullptr;
    cudaGraphExec_t graph = nullptr;
    must(cudaStreamBeginCapture(gpu.streams[0], cudaStreamCaptureModeThreadLocal) == cudaSuccess,
         "capture");
    for (int layer = 0; layer < TIMES; ++layer) {
        call(layer);
    }
    must(cudaStreamEndCapture(gpu.streams[0], &made) == cudaSuccess &&
             cudaGraphInstantiate(&graph, made, 0) == cudaSuccess,
         "captured");
    const double seconds =
        middle_seconds(RUNS, 1, 1, [&](int) { (void)cudaGraphLaunch(graph, gpu.streams[0]); });
    (void)cudaGraphExecDestroy(graph);
    (void)cudaGraphDestroy(made);
    return seconds / TIMES;
}

void measure(const bench &b, int rows) {
    double two = 1;
    double one = 1;
    for (int turn = 0; turn < 2; ++turn) {
        two = std::min(two, seconds_recorded([&](int layer) { b.run_two(rows, layer); }));
        one = std::min(one, seconds_recorded([&](int layer) { b.run_one(rows, layer); }));
    }
    const double flops = 4.0 * rows * INNER * HIDDEN;
    printf("gated product, %3d rows   two kernels %7.2f us, one %7.2f us: %5.1f %% of the copy, "
           "%5.1f %% of the product\n",
           rows, two * 1e6, one * 1e6, 100 * static_cast<double>(bench::bytes()) / one / copy_rate,
           100 * flops / one / product_rate);
    fflush(stdout);
}

} // namespace

int main(int count, char **arguments) {
    std::vector<int> rows = {96, 128, 192, 256};
    bool is_good = true;
    if (count > 1) {
        rows.clear();
    }
    for (int i = 1; i < count; ++i) {
        rows.push_back(std::min(std::max(atoi(arguments[i]), 1), MOST_ROWS));
    }
    open_device();
    if (!gpu.groups[0] || !cuda_gated_pays(gpu.multiprocessors[0], INNER)) {
        printf("no gated product on this device\n");
        return 0;
    }
    must(cuda_lt_check(&host, &device) == BERTH_OK, "cuBLASLt");
    const bench b;
    measure_ceilings();
    for (const int some : count > 1 ? rows : std::vector<int>{65, 128, 129, 192, 193, 256}) {
        is_good = is_right(b, some) && is_good;
    }
    for (const int some : rows) {
        measure(b, some);
    }
    return is_good ? 0 : 1;
}
