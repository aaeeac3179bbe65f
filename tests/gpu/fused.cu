// SPDX-License-Identifier: Apache-2.0
// The quantized products of a layer of Llama-3-8B with what is before them, on platform-cuda: as
// one op each (fused_scaled_linear, fused_packed_linear) beside norm, activation, quantiser and
// product as ops of their own. First the results of both, then the time of both, captured as a plan
// captures them, each layer with weights of its own. Prints one line a case; status 1 where results
// differ.
//
// `fused [ROWS...] [KIND]`: numbers of rows, 1 2 4 8 16 64 unless named; 0: only compares. KIND:
// only codes whose name begins so.
#include <cuda/codes/before.h>

#include "host.cuh"

#include <algorithm>
#include <memory>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

extern "C" {
extern const berth_op_impl berth_kernel_rms_norm;
extern const berth_op_impl berth_kernel_silu_and_mul;
extern const berth_op_impl berth_kernel_quant_fp8;
extern const berth_op_impl berth_kernel_quant_int8;
extern const berth_op_impl berth_kernel_scaled_linear_fast;
extern const berth_op_impl berth_kernel_packed_linear_fast;
extern const berth_op_impl berth_kernel_fused_scaled_linear_fast;
extern const berth_op_impl berth_kernel_fused_packed_linear_fast;
}

namespace {

constexpr int LAYERS = 4;
constexpr int64_t HIDDEN = 4096;
constexpr int64_t INNER = 14336;
constexpr int64_t QKV = 6144;

int64_t max_rows = 64;
bool is_bad;

// ---- tensors ------------------------------------------------------------------------------------

enum filling { CODES, NUMBERS, ABOUT_ONE, SMALL };

__global__ void fill_kernel(void *to, size_t count, berth_dtype dtype, filling what) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x) {
        const uint32_t bits = random_of(i);
        const float unit = unit_of(bits);
        if (what == CODES) {
            static_cast<uint8_t *>(to)[i] = code_of(bits);
        } else {
            gpu_store_any(to, dtype, static_cast<int64_t>(i),
                          what == NUMBERS     ? 2 * unit - 1
                          : what == ABOUT_ONE ? 0.5f + unit
                                              : 0.0001f * (0.5f + unit));
        }
    }
}

// Rows, or a part of each.
struct tensor {
    berth_tensor at;
    int64_t shape[2];
    int64_t strides[2];
    size_t bytes;
    bool is_weight = false;

    tensor(berth_dtype dtype, int64_t rows, int64_t width, filling what)
        : shape{rows, width}, strides{width, 1} {
        void *memory = nullptr;
        const size_t count = static_cast<size_t>(rows * width);
        bytes = count * BERTH_DTYPE_BITS(dtype) / 8;
        must(cudaMalloc(&memory, bytes) == cudaSuccess, "memory");
        fill_kernel<<<1024, 256>>>(memory, count, dtype, what);
        must(cudaDeviceSynchronize() == cudaSuccess, "filling");
        at = berth_tensor{
            sizeof(berth_tensor), memory, BERTH_MEMORY_CUDA, 0, 2, dtype, shape, strides, 0};
    }
    tensor(const tensor &) = delete;
    ~tensor() {
        if (shape[1] == strides[0]) {
            (void)cudaFree(at.data);
        }
    }
    // The first columns of `all`, whose memory it is.
    tensor(const tensor &all, int64_t width)
        : at(all.at), shape{all.shape[0], width}, strides{all.shape[1], 1}, bytes(0) {
        at.shape = shape;
        at.strides = strides;
    }
    berth_value_type type() const {
        berth_value_type type = {};
        type.size = sizeof type;
        type.dtype = at.dtype;
        type.ndim = static_cast<uint32_t>(at.ndim);
        type.dims[0] = is_weight ? berth_dim{BERTH_SYMBOL_NONE, 0, shape[0], 1}
                                 : berth_dim{BERTH_SYMBOL_TOKENS, 1, 0, 1};
        type.dims[1] = berth_dim{BERTH_SYMBOL_NONE, 0, shape[1], 1};
        return type;
    }
    std::vector<uint16_t> read() const {
        std::vector<uint16_t> all(bytes / 2);
        must(cudaDeviceSynchronize() == cudaSuccess &&
                 cudaMemcpy(all.data(), at.data, bytes, cudaMemcpyDeviceToHost) == cudaSuccess,
             "reading");
        return all;
    }
};

using shared = std::shared_ptr<tensor>;

shared weight_of(berth_dtype dtype, int64_t rows, int64_t width, filling what) {
    auto weight = std::make_shared<tensor>(dtype, rows, width, what);
    weight->is_weight = true;
    return weight;
}

shared column_of(int64_t width) { // a norm's
    auto weight = weight_of(BERTH_DTYPE_BF16, 1, width, ABOUT_ONE);
    weight->at.ndim = 1;
    weight->at.shape = weight->shape + 1;
    weight->at.strides = weight->strides + 1;
    return weight;
}

shared rows_of(berth_dtype dtype, int64_t rows, int64_t width) {
    return std::make_shared<tensor>(dtype, rows, width,
                                    BERTH_DTYPE_BITS(dtype) == 8 ? CODES : NUMBERS);
}

// ---- calls --------------------------------------------------------------------------------------

struct word {
    const char *name;
    uint64_t kind;
    int64_t number;
    double real;
    const char *text;
    int64_t numbers[2];
};

word text(const char *name, const char *value) {
    return {name, BERTH_ATTRIBUTE_STR, 0, 0, value, {}};
}
word pair(const char *name, int64_t first, int64_t second) {
    return {
        name, BERTH_ATTRIBUTE_I64S, 0, 0, nullptr, {first, second}
    };
}
word real(const char *name, double value) {
    return {name, BERTH_ATTRIBUTE_F64, 0, value, nullptr, {}};
}
word flag(const char *name, int64_t value) {
    return {name, BERTH_ATTRIBUTE_BOOL, value, 0, nullptr, {}};
}
word absent(const char *name) {
    return {name, BERTH_ATTRIBUTE_NONE, 0, 0, nullptr, {}};
}

shared workspace;

struct call {
    const berth_op_impl *impl;
    std::vector<shared> inputs;
    std::vector<shared> outputs;
    void *self = nullptr;

    call(const berth_op_impl *of, std::vector<shared> in, std::vector<shared> out,
         const std::vector<word> &words)
        : impl(of), inputs(std::move(in)), outputs(std::move(out)) {
        std::vector<berth_value_type> types(inputs.size());
        std::vector<const berth_value_type *> given(inputs.size());
        std::vector<berth_attribute> attributes(words.size());
        std::vector<const berth_attribute *> named(words.size());
        berth_op op = {};
        berth_op_site site = {};
        for (size_t i = 0; i < inputs.size(); ++i) {
            if (inputs[i]) {
                types[i] = inputs[i]->type();
                types[i].dims[0] = inputs[i]->at.ndim == 1 ? types[i].dims[1] : types[i].dims[0];
                given[i] = &types[i];
                site.parameter_mask |= uint64_t(inputs[i]->is_weight) << i;
            }
        }
        for (size_t i = 0; i < words.size(); ++i) {
            attributes[i] = berth_attribute{sizeof(berth_attribute), words[i].name, words[i].kind,
                                            words[i].number,         words[i].real, words[i].text,
                                            words[i].numbers,        nullptr,       2};
            named[i] = &attributes[i];
        }
        op.name = impl->op;
        site.size = sizeof site;
        site.host = &host;
        site.op = &op;
        site.layer = "layer";
        site.inputs = given.data();
        site.input_count = given.size();
        site.attributes = named.data();
        site.attribute_count = named.size();
        site.max_tokens = static_cast<uint64_t>(max_rows);
        site.max_sequences = 256;
        must(!impl->supports || impl->supports(&site, &device) == BERTH_OK, "supports");
        must(impl->create(&site, &device, &self) == BERTH_OK, "create");
        must(!impl->workspace ||
                 impl->workspace(self, static_cast<uint64_t>(max_rows)) <= workspace->bytes,
             "workspace");
    }
    call(const call &) = delete;
    ~call() {
        impl->destroy(self);
    }
    void run() const {
        std::vector<const berth_tensor *> in;
        std::vector<berth_tensor *> out;
        for (const shared &input : inputs) {
            in.push_back(input ? &input->at : nullptr);
        }
        for (const shared &output : outputs) {
            out.push_back(&output->at);
        }
        berth_op_args args = {};
        args.size = sizeof args;
        args.inputs = in.data();
        args.outputs = out.data();
        args.workspace = &workspace->at;
        must(impl->forward(self, &args) == BERTH_OK, "forward");
    }
};

using calls = std::vector<std::unique_ptr<call>>;

void add(calls *to, const berth_op_impl *of, std::vector<shared> in, std::vector<shared> out,
         const std::vector<word> &words) {
    to->push_back(std::make_unique<call>(of, std::move(in), std::move(out), words));
}

// ---- products -----------------------------------------------------------------------------------

enum kind { E4M3, I8, U4, KINDS };
constexpr const char *KIND[] = {"e4m3", "i8", "u4 g128"};

struct weights {
    shared codes;
    shared scales;

    weights(kind of, int64_t outputs, int64_t depth)
        : codes(of == U4 ? weight_of(BERTH_DTYPE_U8, outputs, depth / 2, CODES)
                         : weight_of(of == I8 ? BERTH_DTYPE_I8 : BERTH_DTYPE_F8_E4M3FN, outputs,
                                     depth, CODES)),
          scales(of == U4 ? weight_of(BERTH_DTYPE_BF16, outputs, depth / 128, SMALL)
                          : weight_of(BERTH_DTYPE_F32, outputs, 1, SMALL)) {
    }
    double bytes() const {
        return static_cast<double>(codes->bytes + scales->bytes);
    }
};

// What a product has before it, and what it gives.
struct step {
    const char *before; // as the fused ops call it
    shared x, residual, norm_weight, sums, y;
};

void add_quantiser(kind of, shared x, shared q, shared scale, calls *to) {
    if (of == I8) {
        add(to, &berth_kernel_quant_int8, {x, nullptr, nullptr}, {q, scale}, {});
    } else {
        add(to, &berth_kernel_quant_fp8, {x, nullptr, nullptr}, {q, scale},
            {flag("static", 0), pair("group_shape", 1, -1), absent("num_token_padding"),
             flag("column_major_scales", 0), flag("tma_aligned_scales", 0), flag("use_ue8m0", 0)});
    }
}

void add_apart(kind of, const step &with, const weights &by, calls *to) {
    const int64_t rows = with.x->shape[0];
    shared x = with.x;
    if (strcmp(with.before, "rms_norm") == 0) {
        const shared y = rows_of(BERTH_DTYPE_BF16, rows, x->shape[1]);
        add(to, &berth_kernel_rms_norm, {x, with.residual, with.norm_weight}, {y, with.sums},
            {real("eps", 1e-5), absent("var_hidden_size")});
        x = y;
    } else if (strcmp(with.before, "silu_and_mul") == 0) {
        const shared y = rows_of(BERTH_DTYPE_BF16, rows, x->shape[1] / 2);
        add(to, &berth_kernel_silu_and_mul, {x}, {y}, {});
        x = y;
    }
    if (of == U4) {
        add(to, &berth_kernel_packed_linear_fast,
            {x, by.codes, by.scales, nullptr, nullptr, nullptr}, {with.y},
            {text("code", "u4"), pair("group_shape", 1, 128)});
        return;
    }
    const shared q = rows_of(by.codes->at.dtype, rows, x->shape[1]);
    const shared scale = rows_of(BERTH_DTYPE_F32, rows, 1);
    add_quantiser(of, x, q, scale, to);
    add(to, &berth_kernel_scaled_linear_fast, {q, scale, by.codes, by.scales, nullptr, nullptr},
        {with.y}, {pair("group_shape", 1, -1), text("dtype", "bf16")});
}

void add_fused(kind of, const step &with, const weights &by, calls *to) {
    std::vector<shared> outputs = {with.y};
    if (with.residual) {
        outputs.push_back(with.sums);
    }
    if (of != U4) {
        add(to, &berth_kernel_fused_scaled_linear_fast,
            {with.x, by.codes, by.scales, with.residual, with.norm_weight, nullptr, nullptr,
             nullptr, nullptr},
            outputs,
            {text("prologue", with.before), real("eps", 1e-5), pair("input_group_shape", 1, -1),
             pair("group_shape", 1, -1), text("dtype", "bf16")});
    } else if (strcmp(with.before, "none") == 0) {
        add_apart(of, with, by, to);
    } else {
        add(to, &berth_kernel_fused_packed_linear_fast,
            {with.x, by.codes, by.scales, nullptr, nullptr, with.residual, with.norm_weight,
             nullptr},
            outputs,
            {text("prologue", with.before), real("eps", 1e-5), text("code", "u4"),
             pair("group_shape", 1, 128)});
    }
}

// ---- layers -------------------------------------------------------------------------------------

constexpr int PRODUCTS = 4;
constexpr const char *PRODUCT[] = {"qkv", "o", "gate_up", "down"};

struct layer_weights {
    weights of[PRODUCTS];
    shared norms[2];

    explicit layer_weights(kind k)
        : of{{k, QKV, HIDDEN}, {k, HIDDEN, HIDDEN}, {k, 2 * INNER, HIDDEN}, {k, HIDDEN, INNER}},
          norms{column_of(HIDDEN), column_of(HIDDEN)} {
    }
};

// The values of a layer; what attention would make is the first part of what it would be given.
struct layer {
    step steps[PRODUCTS];

    layer(const layer_weights &with, shared x, shared residual) {
        const int64_t rows = x->shape[0];
        const auto made = [&](int64_t width) { return rows_of(BERTH_DTYPE_BF16, rows, width); };
        steps[0] = {"rms_norm", x, residual, with.norms[0], made(HIDDEN), made(QKV)};
        steps[1] = {"none",  std::make_shared<tensor>(*steps[0].y, HIDDEN),
                    nullptr, nullptr,
                    nullptr, made(HIDDEN)};
        steps[2] = {"rms_norm",    steps[1].y,   steps[0].sums,
                    with.norms[1], made(HIDDEN), made(2 * INNER)};
        steps[3] = {"silu_and_mul", steps[2].y, nullptr, nullptr, nullptr, made(HIDDEN)};
    }
};

// The largest distance beside the largest number, and how many of the numbers are the same bits.
void compare(const char *name, const char *what, const std::vector<uint16_t> &a,
             const std::vector<uint16_t> &b) {
    const double distance = distance_of(a, b);
    size_t same = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        same += a[i] == b[i];
    }
    const bool is_close = distance < 1.0 / 64;
    is_bad = is_bad || !is_close;
    printf("%-22s %-8s apart %.5f, %6.2f %% same bits%s\n", name, what, distance,
           100.0 * static_cast<double>(same) / static_cast<double>(a.size()),
           is_close ? "" : "  WRONG");
}

// Each product of a layer by itself, from what the one before it gave without fusion.
void check(kind of, const layer_weights &with, int64_t rows) {
    const layer values(with, rows_of(BERTH_DTYPE_BF16, rows, HIDDEN),
                       rows_of(BERTH_DTYPE_BF16, rows, HIDDEN));
    for (int i = 0; i < PRODUCTS; ++i) {
        const step &at = values.steps[i];
        char name[64];
        calls apart;
        calls fused;
        (void)snprintf(name, sizeof name, "%s %lld rows", KIND[of], (long long)rows);
        add_fused(of, at, with.of[i], &fused);
        add_apart(of, at, with.of[i], &apart);
        must(cudaMemset(at.y->at.data, 0xff, at.y->bytes) == cudaSuccess, "poison");
        for (const auto &one : fused) {
            one->run();
        }
        const std::vector<uint16_t> y = at.y->read();
        const std::vector<uint16_t> sums = at.sums ? at.sums->read() : std::vector<uint16_t>();
        for (const auto &one : fused) {
            one->run();
        }
        if (at.y->read() != y) {
            printf("%s %s: another time other bits  WRONG\n", name, PRODUCT[i]);
            is_bad = true;
        }
        must(cudaMemset(at.y->at.data, 0xff, at.y->bytes) == cudaSuccess, "poison");
        for (const auto &one : apart) {
            one->run();
        }
        compare(name, PRODUCT[i], y, at.y->read());
        if (at.sums) {
            const bool is_same = sums == at.sums->read();
            is_bad = is_bad || !is_same;
            if (!is_same) {
                printf("%s %s: sums differ  WRONG\n", name, PRODUCT[i]);
            }
        }
    }
}

// ---- times --------------------------------------------------------------------------------------

struct captured {
    cudaGraphExec_t graph = nullptr;

    explicit captured(const calls &all) {
        cudaGraph_t made = nullptr;
        must(cudaStreamBeginCapture(gpu.streams[0], cudaStreamCaptureModeThreadLocal) ==
                 cudaSuccess,
             "capture");
        for (const auto &one : all) {
            one->run();
        }
        must(cudaStreamEndCapture(gpu.streams[0], &made) == cudaSuccess &&
                 cudaGraphInstantiate(&graph, made, 0) == cudaSuccess,
             "captured");
        (void)cudaGraphDestroy(made);
    }
    captured(const captured &) = delete;
    ~captured() {
        (void)cudaGraphExecDestroy(graph);
    }
    // Of one replay of several.
    double seconds(int runs) const {
        (void)cudaGraphLaunch(graph, gpu.streams[0]);
        return seconds_between([&] {
                   for (int run = 0; run < runs; ++run) {
                       (void)cudaGraphLaunch(graph, gpu.streams[0]);
                   }
               }) /
               runs;
    }
};

// Seconds of both, in turns, the middle ones.
void time_both(const calls &apart, const calls &fused, double *out) {
    const captured first(apart);
    const captured second(fused);
    std::vector<double> samples[2];
    const double once = first.seconds(2);
    const int runs = std::max(2, static_cast<int>(0.01 / once));
    for (int sample = 0; sample < 5; ++sample) {
        samples[0].push_back(first.seconds(runs));
        samples[1].push_back(second.seconds(runs));
    }
    for (int i = 0; i < 2; ++i) {
        std::sort(samples[i].begin(), samples[i].end());
        out[i] = samples[i][2];
    }
}

double copy_rate() {
    const size_t bytes = size_t(1) << 30;
    const shared from = weight_of(BERTH_DTYPE_U8, 1 << 15, 1 << 15, CODES);
    const shared to = weight_of(BERTH_DTYPE_U8, 1 << 15, 1 << 15, CODES);
    double best = 1;
    for (int i = 0; i < 6; ++i) {
        best = std::min(best, seconds_between([&] {
                            (void)cudaMemcpyAsync(to->at.data, from->at.data, bytes,
                                                  cudaMemcpyDeviceToDevice, gpu.streams[0]);
                        }));
    }
    return 2.0 * static_cast<double>(bytes) / best;
}

void print_times(const char *name, const char *what, const double *seconds, double bytes,
                 double rate) {
    printf("%-22s %-8s apart %8.2f us, fused %8.2f us, a copy %8.2f us: %5.1f %% -> %5.1f %%\n",
           name, what, seconds[0] * 1e6, seconds[1] * 1e6, bytes / rate * 1e6,
           100 * bytes / rate / seconds[0], 100 * bytes / rate / seconds[1]);
    fflush(stdout);
}

using all_layers = std::vector<std::unique_ptr<layer_weights>>;

void measure(kind of, const all_layers &with, int64_t rows, double rate) {
    char name[64];
    double bytes = 0;
    double seconds[2];
    calls apart[PRODUCTS + 1];
    calls fused[PRODUCTS + 1];
    shared x = rows_of(BERTH_DTYPE_BF16, rows, HIDDEN);
    shared residual = rows_of(BERTH_DTYPE_BF16, rows, HIDDEN);
    (void)snprintf(name, sizeof name, "%s %lld rows", KIND[of], (long long)rows);
    for (const auto &one : with) {
        const layer values(*one, x, residual);
        for (int i = 0; i < PRODUCTS; ++i) {
            for (const int to : {i, PRODUCTS}) {
                add_apart(of, values.steps[i], one->of[i], &apart[to]);
                add_fused(of, values.steps[i], one->of[i], &fused[to]);
            }
            bytes += one->of[i].bytes();
        }
        x = values.steps[3].y;
        residual = values.steps[2].sums;
    }
    for (int i = 0; i < PRODUCTS; ++i) {
        time_both(apart[i], fused[i], seconds);
        seconds[0] /= LAYERS;
        seconds[1] /= LAYERS;
        print_times(name, PRODUCT[i], seconds, with[0]->of[i].bytes(), rate);
    }
    time_both(apart[PRODUCTS], fused[PRODUCTS], seconds);
    seconds[0] /= LAYERS;
    seconds[1] /= LAYERS;
    print_times(name, "layer", seconds, bytes / LAYERS, rate);
}

} // namespace

int main(int count, char **arguments) {
    std::vector<int64_t> rows = {1, 2, 4, 8, 16, 64};
    const char *only = "";
    if (count > 1 && !(arguments[count - 1][0] >= '0' && arguments[count - 1][0] <= '9')) {
        only = arguments[--count];
    }
    if (count > 1) {
        rows.clear();
    }
    for (int i = 1; i < count; ++i) {
        rows.push_back(atoll(arguments[i]));
        max_rows = std::max(max_rows, rows.back());
    }
    open_device();
    workspace = std::make_shared<tensor>(BERTH_DTYPE_U8, 1, INT64_C(1) << 30, CODES);
    const double rate = copy_rate();
    printf("copy %.2f TB/s\n", rate / 1e12);
    for (const kind of : {E4M3, I8, U4}) {
        all_layers with;
        if (strncmp(KIND[of], only, strlen(only)) != 0) {
            continue;
        }
        for (int i = 0; i < LAYERS; ++i) {
            with.push_back(std::make_unique<layer_weights>(of));
        }
        for (const int64_t few : {1, 2, 13, 40}) {
            check(of, *with[0], few);
        }
        for (const int64_t some : rows) {
            if (some > 0 && (of != I8 || some == 1)) {
                measure(of, with, some, rate);
            }
        }
    }
    return is_bad;
}
