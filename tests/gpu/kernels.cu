// SPDX-License-Identifier: Apache-2.0
// Times the kernels of platform-cuda at the sizes of Llama-3-8B, each beside what the same machine
// does at best in the same minute: a copy within device memory for those that are bound by bytes, a
// product of 8192 by 8192 by 8192 for those that are bound by arithmetic. Random bf16; operands of
// a case rotate through more memory than four times the second cache.
//
// `kernels small` only compares, at sizes for compute-sanitizer. Else prints one line a case: name,
// microseconds, what bounds it, its rate, its share of the ceiling; `kernels linear [ROWS…]`: only
// those of linear, of so many rows; `kernels decode`, `kernels prefill`: only attention of these.
// Status 1 where linear is slower than it must be beside what cuBLASLt proposes.
#include <cuda/attention/attention.h>

#include "bench.cuh"
#include "proposals.cuh"

#include <algorithm>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

extern "C" {
extern const berth_op_impl berth_kernel_rms_norm;
extern const berth_op_impl berth_kernel_silu_and_mul;
extern const berth_op_impl berth_kernel_rotary_embedding;
extern const berth_op_impl berth_kernel_embedding;
extern const berth_op_impl berth_kernel_linear;
extern const berth_op_impl berth_kernel_linear_fast;
extern const berth_op_impl berth_kernel_paged_attention;
extern const berth_op_impl berth_kernel_paged_attention_fast;
}

namespace {

// ---- cases --------------------------------------------------------------------------------------

struct linear_case {
    const char *name;
    int64_t rows;
    int64_t outputs;
    int64_t depth;
    bool is_judged = false; // beside what cuBLASLt proposes
};

constexpr double COMPARED = 1e11;    // operations, at most: the readable kernel is slow
constexpr double LEAST_SHARE = 0.97; // of the best proposal's speed
constexpr double LEAST_COPY = 0.85;  // of a copy of the same bytes, at one row
int misses;                          // gates that were not passed

// cuda.linear beside the best of cuBLASLt's proposals over the same operands: all of them briefly,
// then the four fastest in turns with it, each at its best. `forward(run)`: cuda.linear's.
template <typename W, typename F>
void time_proposals(const linear_case &c, const void *x, void *y, W weight_of, F forward) {
    proposals blas;
    std::vector<std::pair<double, int>> order;
    const int runs = c.rows > 512 ? 4 : 20;
    must(blas.open(c.rows, c.outputs, c.depth), "cuBLASLt's proposals");
    for (int i = 0; i < blas.size(); ++i) {
        if (blas.run(i, x, weight_of(0), y, gpu.streams[0])) {
            const auto call = [&](int run) {
                (void)blas.run(i, x, weight_of(run), y, gpu.streams[0]);
            };
            order.push_back({seconds_of(runs, call, 1), i});
        }
    }
    must(!order.empty(), "none of cuBLASLt's proposals runs");
    std::sort(order.begin(), order.end());
    double best = 1;
    double own = 1;
    for (int turn = 0; turn < 3; ++turn) { // each as often, as clocks fall where work is hard
        for (size_t i = 0; i < order.size() && i < 4; ++i) {
            const auto call = [&](int run) {
                (void)blas.run(order[i].second, x, weight_of(run), y, gpu.streams[0]);
            };
            own = std::min(own, seconds_of(runs, forward, 5));
            best = std::min(best, seconds_of(runs, call, 5));
        }
    }
    const bool is_passed = best / own >= LEAST_SHARE;
    misses += !is_passed;
    printf("%-44s %10.2f us  %8.2f us        %5.1f %% of its speed%s\n",
           "  beside the best that cuBLASLt proposes", own * 1e6, best * 1e6, 100 * best / own,
           is_passed ? "" : "  below 97 %");
}

void time_linear(const linear_case &c) {
    const size_t weight_bytes = (size_t)(c.outputs * c.depth) * 2;
    const size_t copies = 1 + BEYOND_CACHE / weight_bytes;
    char *weights = static_cast<char *>(make(copies * weight_bytes));
    site_of s = {};
    tensor x, y, expected, workspace;
    void *self = nullptr;
    void *plain = nullptr;
    s.types = {type_of(BERTH_DTYPE_BF16, {c.rows, c.depth}, BERTH_SYMBOL_TOKENS),
               type_of(BERTH_DTYPE_BF16, {c.outputs, c.depth}, 0), berth_value_type{}};
    must(berth_kernel_linear_fast.create(s.finish(c.rows, c.rows), &device, &self) == BERTH_OK &&
             berth_kernel_linear.create(&s.site, &device, &plain) == BERTH_OK,
         "linear");
    const size_t out_bytes = (size_t)(c.rows * c.outputs) * 2;
    describe(&x, make((size_t)(c.rows * c.depth) * 2), BERTH_DTYPE_BF16, {c.rows, c.depth});
    describe(&y, make(out_bytes), BERTH_DTYPE_BF16, {c.rows, c.outputs});
    describe(&expected, make(out_bytes), BERTH_DTYPE_BF16, {c.rows, c.outputs});
    describe(&workspace, make(CUDA_LT_WORKSPACE), BERTH_DTYPE_U8, {(int64_t)CUDA_LT_WORKSPACE});
    const auto forward = [&](const berth_op_impl *with, void *instance, tensor *to, int run) {
        tensor weight;
        describe(&weight, weights + (size_t)run % copies * weight_bytes, BERTH_DTYPE_BF16,
                 {c.outputs, c.depth});
        const berth_tensor *inputs[] = {&x.at, &weight.at, nullptr};
        berth_tensor *outputs_of[] = {&to->at};
        berth_op_args args = {};
        args.inputs = inputs;
        args.outputs = outputs_of;
        args.workspace = &workspace.at;
        must(with->forward(instance, &args) == BERTH_OK, "linear");
    };
    const double seconds =
        seconds_of(20, [&](int run) { forward(&berth_kernel_linear_fast, self, &y, run); });
    char label[96];
    snprintf(label, sizeof label, "linear %s %lld x %lld, %lld rows", c.name, (long long)c.outputs,
             (long long)c.depth, (long long)c.rows);
    const double bytes = (double)weight_bytes + (double)(c.rows * (c.depth + c.outputs)) * 2;
    const double flops = 2.0 * (double)c.rows * (double)c.outputs * (double)c.depth;
    if (flops / product_rate > bytes / copy_rate) {
        print_flops(label, seconds, flops);
    } else {
        print_bytes(label, seconds, bytes);
    }
    if (c.is_judged && c.rows == 1 && bytes / seconds < LEAST_COPY * copy_rate) {
        ++misses;
        printf("%-44s below %.0f %% of the copy\n", "", 100 * LEAST_COPY);
    }
    if (c.is_judged) {
        time_proposals(
            c, x.at.data, y.at.data,
            [&](int run) { return weights + (size_t)run % copies * weight_bytes; },
            [&](int run) { forward(&berth_kernel_linear_fast, self, &y, run); });
    }
    if (flops <= COMPARED) {
        forward(&berth_kernel_linear, plain, &expected, 0);
        must(cudaMemsetAsync(y.at.data, 0xff, out_bytes, gpu.streams[0]) == cudaSuccess, "poison");
        forward(&berth_kernel_linear_fast, self, &y, 0);
        const double distance =
            distance_of(y.at.data, expected.at.data, (size_t)(c.rows * c.outputs));
        printf("%-44s %10.5f of the largest\n", "  beside gpu.linear", distance);
        must(distance < 0.01, "linear differs");
        // A race shows where the same product gives other bits.
        for (int again = 0; again < 8; ++again) {
            forward(&berth_kernel_linear_fast, self, &expected, 0);
            must(distance_of(expected.at.data, y.at.data, (size_t)(c.rows * c.outputs)) == 0,
                 "linear differs from itself");
        }
    }
    berth_kernel_linear_fast.destroy(self);
    berth_kernel_linear.destroy(plain);
    (void)cudaFree(weights);
    for (const tensor *one : {&x, &y, &expected, &workspace}) {
        (void)cudaFree(one->at.data);
    }
}

constexpr int64_t HEADS = 32; // of Llama-3-8B
constexpr int64_t WIDTH = 128;
constexpr int64_t BLOCK = 16;
constexpr int64_t CHECKED = 1 << 20; // tokens times length, at most: the readable kernel is slow

// `fresh` new tokens of each sequence, which has `length` with them; with `shorter` each sequence
// has so many fewer than the one before it, beginning anew where none would be left.
struct attention_case {
    int64_t sequences;
    int64_t fresh;
    int64_t length;
    int64_t heads = HEADS;
    int64_t kv_heads = 8;
    int64_t width = WIDTH;
    int64_t window = 0;     // 0: none
    bool has_codes = false; // caches of f8_e4m3fn
    int64_t shorter = 0;

    int64_t length_of(int64_t sequence) const {
        return length - sequence * shorter % (length - fresh + 1);
    }
};

// Codes of e4m3, none of them no number.
__global__ void codes_kernel(uint8_t *to, size_t count) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count;
         i += size_t(gridDim.x) * blockDim.x) {
        const uint64_t x = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        const uint32_t code =
            static_cast<uint32_t>((x ^ x >> 29) * UINT64_C(0xBF58476D1CE4E5B9) >> 40) & 0xff;
        to[i] = static_cast<uint8_t>((code & 0x7f) == 0x7f ? code ^ 1 : code);
    }
}

// Of both caches; scores differ.
char *make_caches(const attention_case &c, size_t bytes) {
    char *caches = static_cast<char *>(make(bytes, 2));
    if (c.has_codes) {
        codes_kernel<<<1024, 256>>>(reinterpret_cast<uint8_t *>(caches), bytes);
        must(cudaDeviceSynchronize() == cudaSuccess, "filling");
    }
    return caches;
}

// Whether each slot of a cache without codes has its row of `rows`.
void check_stored(const char *cache, const tensor &rows, const std::vector<int64_t> &slots) {
    const size_t row = (size_t)(rows.shape[1] * rows.shape[2]) * 2;
    for (size_t i = 0; i < slots.size(); i += 1 + slots.size() / 300) {
        must(distance_of(cache + (size_t)slots[i] * row,
                         static_cast<const char *>(rows.at.data) + i * row, row / 2) == 0,
             "what is stored differs");
    }
}

void time_attention(const attention_case &c) {
    const int64_t sequences = c.sequences;
    const int64_t fresh = c.fresh;
    const int64_t length = c.length;
    const int64_t per = (length + BLOCK - 1) / BLOCK;
    const int64_t blocks = sequences * per + 1;
    const int64_t tokens = sequences * fresh;
    const berth_dtype cache = c.has_codes ? BERTH_DTYPE_F8_E4M3FN : BERTH_DTYPE_BF16;
    const size_t element = BERTH_DTYPE_BITS(cache) / 8;
    const size_t cache_bytes = (size_t)(blocks * BLOCK * c.kv_heads * c.width) * element;
    const size_t copies = 1 + BEYOND_CACHE / (2 * cache_bytes);
    char *caches = make_caches(c, copies * 2 * cache_bytes);
    std::vector<int32_t> starts, lengths, table;
    std::vector<int64_t> slots;
    int64_t keys = 0; // of all sequences
    for (int64_t s = 0; s < sequences; ++s) {
        const int64_t own = c.length_of(s);
        keys += own;
        starts.push_back((int32_t)(s * fresh));
        lengths.push_back((int32_t)own);
        for (int64_t b = 0; b < per; ++b) { // scattered, as after a while of serving
            table.push_back((int32_t)(1 + (b * sequences + s) * 7919 % (blocks - 1)));
        }
        for (int64_t t = own - fresh; t < own; ++t) {
            slots.push_back((int64_t)table[(size_t)(s * per + t / BLOCK)] * BLOCK + t % BLOCK);
        }
    }
    starts.push_back((int32_t)tokens);
    // What lies behind a sequence's last key must not count, whatever it is: NaN.
    const size_t row = (size_t)(c.kv_heads * c.width) * element;
    for (size_t number = 0; number < 2 * copies; ++number) {
        for (int64_t s = 0; s < sequences; ++s) {
            const int64_t last = lengths[(size_t)s] / BLOCK;
            const size_t inside = (size_t)(lengths[(size_t)s] % BLOCK);
            for (int64_t b = last; b < per; ++b) {
                const size_t block = (size_t)table[(size_t)(s * per + b)];
                const size_t kept = b == last ? inside * row : 0;
                char *at = caches + number * cache_bytes + block * BLOCK * row;
                must(cudaMemset(at + kept, 0xff, BLOCK * row - kept) == cudaSuccess, "NaN");
            }
        }
    }
    tensor q, k, v, out, workspace, qsl, lens, tab, slot, scale;
    describe(&q, make((size_t)(tokens * c.heads * c.width) * 2, 4), BERTH_DTYPE_BF16,
             {tokens, c.heads, c.width});
    describe(&out, make((size_t)(tokens * c.heads * c.width) * 2), BERTH_DTYPE_BF16,
             {tokens, c.heads, c.width});
    describe(&k, make((size_t)(tokens * c.kv_heads * c.width) * 2), BERTH_DTYPE_BF16,
             {tokens, c.kv_heads, c.width});
    describe(&v, make((size_t)(tokens * c.kv_heads * c.width) * 2), BERTH_DTYPE_BF16,
             {tokens, c.kv_heads, c.width});
    describe(&qsl, upload(starts), BERTH_DTYPE_I32, {sequences + 1});
    describe(&lens, upload(lengths), BERTH_DTYPE_I32, {sequences});
    describe(&tab, upload(table), BERTH_DTYPE_I32, {sequences, per});
    describe(&slot, upload(slots), BERTH_DTYPE_I64, {tokens});
    describe(&scale, upload(std::vector<float>{0.011f}), BERTH_DTYPE_F32, {1});
    const berth_tensor *tables[] = {&tab.at};
    const berth_tensor *mappings[] = {&slot.at};
    berth_batch_view view = {};
    view.query_start_loc = &qsl.at;
    view.seq_lens = &lens.at;
    view.block_tables = tables;
    view.slot_mappings = mappings;
    berth_batch batch = {};
    batch.device = &view;
    batch.token_count = tokens;
    batch.sequence_count = sequences;
    batch.max_query_len = fresh;
    batch.max_seq_len = length;
    site_of s = {};
    s.types = {type_of(BERTH_DTYPE_BF16, {tokens, c.heads, c.width}, BERTH_SYMBOL_TOKENS),
               type_of(BERTH_DTYPE_BF16, {tokens, c.kv_heads, c.width}, BERTH_SYMBOL_TOKENS),
               type_of(BERTH_DTYPE_BF16, {tokens, c.kv_heads, c.width}, BERTH_SYMBOL_TOKENS),
               berth_value_type{},
               berth_value_type{},
               berth_value_type{},
               berth_value_type{},
               berth_value_type{},
               berth_value_type{}};
    if (c.has_codes) {
        s.types[7] = s.types[8] = type_of(BERTH_DTYPE_F32, {1}, 0);
    }
    s.number("scale", BERTH_ATTRIBUTE_F64, 0, 1 / sqrt((double)c.width), nullptr);
    s.number("sliding_window", BERTH_ATTRIBUTE_I64, c.window, 0, nullptr);
    s.number("logits_soft_cap", BERTH_ATTRIBUTE_F64, 0, 0, nullptr);
    void *self = nullptr;
    const berth_op_impl *impl = &berth_kernel_paged_attention_fast;
    must(impl->supports(s.finish(tokens, sequences), &device) == BERTH_OK, "attention");
    must(impl->create(&s.site, &device, &self) == BERTH_OK, "attention");
    const uint64_t room = impl->workspace(self, (uint64_t)tokens);
    describe(&workspace, make(room), BERTH_DTYPE_U8, {(int64_t)room});
    const auto forward = [&](const berth_op_impl *with, void *instance, tensor *to, int run) {
        tensor keys, values;
        char *at = caches + (size_t)run % copies * 2 * cache_bytes;
        describe(&keys, at, cache, {blocks, BLOCK, c.kv_heads, c.width});
        describe(&values, at + cache_bytes, cache, {blocks, BLOCK, c.kv_heads, c.width});
        const berth_tensor *scales = c.has_codes ? &scale.at : nullptr;
        const berth_tensor *inputs[] = {&q.at,   &k.at,   &v.at,  nullptr, nullptr,
                                        nullptr, nullptr, scales, scales};
        berth_tensor *outputs[] = {&to->at};
        berth_tensor *states[] = {&keys.at, &values.at};
        berth_op_args args = {};
        args.inputs = inputs;
        args.outputs = outputs;
        args.states = states;
        args.workspace = &workspace.at;
        args.batch = &batch;
        must(with->forward(instance, &args) == BERTH_OK, "attention");
    };
    const double seconds =
        seconds_of(fresh > 1 ? 3 : 20, [&](int run) { forward(impl, self, &out, run); });
    char label[96];
    if (fresh > 1) {
        snprintf(label, sizeof label, "attention prefill%s %lld x %lld, %lld/%lld of %lld",
                 c.has_codes ? " of codes" : "", (long long)sequences, (long long)length,
                 (long long)c.heads, (long long)c.kv_heads, (long long)c.width);
        print_flops(label, seconds,
                    4.0 * (double)(sequences * c.heads * c.width) * (double)fresh * (double)length /
                        2);
    } else {
        snprintf(label, sizeof label, "attention decode%s %lld x %s%lld, %lld/%lld of %lld",
                 c.has_codes ? " of codes" : "", (long long)sequences, c.shorter ? "up to " : "",
                 (long long)length, (long long)c.heads, (long long)c.kv_heads, (long long)c.width);
        print_bytes(label, seconds,
                    (double)(keys * c.kv_heads * c.width) * 2 * (double)element +
                        (double)(tokens * c.heads * c.width) * 4);
    }
    // Beside the readable kernel, which golden vectors check.
    const berth_op_impl *plain = &berth_kernel_paged_attention;
    tensor expected;
    void *plain_self = nullptr;
    describe(&expected, make((size_t)(tokens * c.heads * c.width) * 2), BERTH_DTYPE_BF16,
             {tokens, c.heads, c.width});
    if (tokens * length <= CHECKED) {
        must(plain->create(&s.site, &device, &plain_self) == BERTH_OK, "attention");
        forward(plain, plain_self, &expected, 0);
        for (const int64_t slot : slots) {
            for (int which = 0; which < 2; ++which) {
                char *at = caches + (size_t)which * cache_bytes + (size_t)slot * row;
                must(cudaMemsetAsync(at, 0xff, row, gpu.streams[0]) == cudaSuccess, "poison");
            }
        }
        forward(impl, self, &out, 0);
        const double distance =
            distance_of(out.at.data, expected.at.data, (size_t)(tokens * c.heads * c.width));
        printf("%-44s %10.5f of the largest\n", "  beside gpu.paged_attention", distance);
        must(distance < 0.02, "attention differs");
        if (!c.has_codes) {
            check_stored(caches, k, slots);
            check_stored(caches + cache_bytes, v, slots);
        }
        // A race shows where the same batch gives other bits.
        for (int again = 0; again < 4; ++again) {
            forward(impl, self, &expected, 0);
            must(distance_of(expected.at.data, out.at.data, (size_t)(tokens * c.heads * c.width)) ==
                     0,
                 "attention differs from itself");
        }
        plain->destroy(plain_self);
    }
    impl->destroy(self);
    (void)cudaFree(expected.at.data);
    for (const tensor *one : {&q, &k, &v, &out, &workspace, &qsl, &lens, &tab, &slot, &scale}) {
        (void)cudaFree(one->at.data);
    }
    (void)cudaFree(caches);
}

// One of the kernels that only move rows. `bytes`: what it must read and write.
void time_rows(const berth_op_impl *impl, const char *name, int64_t tokens) {
    constexpr int64_t HIDDEN = 4096;
    constexpr size_t INPUTS = 6; // of rotary_embedding; the others have fewer
    const bool is_norm = impl == &berth_kernel_rms_norm;
    const bool is_rope = impl == &berth_kernel_rotary_embedding;
    const size_t copies = 1 + BEYOND_CACHE / (size_t)(tokens * HIDDEN * 2);
    const size_t bytes = (size_t)(tokens * HIDDEN * 2) * (is_norm ? 1 : is_rope ? 1 : 7);
    char *from = static_cast<char *>(make(copies * bytes));
    char *to = static_cast<char *>(make(copies * bytes));
    std::vector<int32_t> places;
    for (int64_t i = 0; i < tokens; ++i) {
        places.push_back((int32_t)(i % 8192));
    }
    tensor weight, positions;
    describe(&weight, make(HIDDEN * 2), BERTH_DTYPE_BF16, {HIDDEN});
    describe(&positions, upload(places), BERTH_DTYPE_I32, {tokens});
    site_of s = {};
    if (is_rope) {
        s.types = {type_of(BERTH_DTYPE_I32, {tokens}, 1),
                   type_of(BERTH_DTYPE_BF16, {tokens, HEADS, WIDTH}, 1)};
        s.number("rotary_dim", BERTH_ATTRIBUTE_I64, WIDTH, 0, nullptr);
        s.number("max_position", BERTH_ATTRIBUTE_I64, 8192, 0, nullptr);
        s.number("base", BERTH_ATTRIBUTE_F64, 0, 5e5, nullptr);
        s.number("is_neox_style", BERTH_ATTRIBUTE_BOOL, 1, 0, nullptr);
        s.number("rope_type", BERTH_ATTRIBUTE_STR, 0, 0, "default");
    } else {
        s.types = {type_of(BERTH_DTYPE_BF16, {tokens, is_norm ? HIDDEN : 7 * HIDDEN}, 1)};
        s.number("eps", BERTH_ATTRIBUTE_F64, 0, 1e-5, nullptr);
        s.number("var_hidden_size", BERTH_ATTRIBUTE_NONE, 0, 0, nullptr);
    }
    s.types.resize(INPUTS); // the rest is absent
    void *self = nullptr;
    must(impl->create(s.finish(tokens, tokens), &device, &self) == BERTH_OK, name);
    // `count` tokens of copy `run` from token `first` on, to `out`.
    const auto forward = [&](size_t run, int64_t first, int64_t count, char *out) {
        tensor x, y, own_positions;
        const int64_t width = is_norm || is_rope ? HIDDEN : 7 * HIDDEN;
        char *in = from + run % copies * bytes + (size_t)(first * width * 2);
        const berth_tensor *inputs[INPUTS] = {&x.at, nullptr, &weight.at};
        if (is_rope) {
            describe(&own_positions, static_cast<int32_t *>(positions.at.data) + first,
                     BERTH_DTYPE_I32, {count});
            describe(&x, in, BERTH_DTYPE_BF16, {count, HEADS, WIDTH});
            describe(&y, out, BERTH_DTYPE_BF16, {count, HEADS, WIDTH});
            inputs[0] = &own_positions.at;
            inputs[1] = &x.at;
            inputs[2] = nullptr;
        } else {
            describe(&x, in, BERTH_DTYPE_BF16, {count, width});
            describe(&y, out, BERTH_DTYPE_BF16, {count, is_norm ? width : width / 2});
        }
        berth_tensor *outputs[] = {&y.at};
        berth_op_args args = {};
        args.inputs = inputs;
        args.outputs = outputs;
        must(impl->forward(self, &args) == BERTH_OK, name);
    };
    const double seconds = seconds_of(
        20, [&](int run) { forward((size_t)run, 0, tokens, to + (size_t)run % copies * bytes); });
    char label[96];
    snprintf(label, sizeof label, "%s, %lld tokens", name, (long long)tokens);
    print_bytes(label, seconds, (double)bytes * (is_norm || is_rope ? 2 : 1.5));
    constexpr int64_t FEW = 40; // rows that another of the op's kernels takes, or other blocks
    if (tokens > FEW) {
        const size_t row = (size_t)HIDDEN * (is_norm || is_rope ? 2 : 7);
        forward(0, 0, tokens, to);
        char *few = static_cast<char *>(make(FEW * row));
        forward(0, tokens - FEW, FEW, few);
        const double distance = distance_of(to + (size_t)(tokens - FEW) * row, few, FEW * row / 2);
        printf("%-44s %10.5f of the largest\n", "  beside a few rows", distance);
        must(distance < 0.005, "rows differ");
        (void)cudaFree(few);
    }
    impl->destroy(self);
    (void)cudaFree(from);
    (void)cudaFree(to);
}

// What is only compared: odd sizes, short last tiles and steps, more tiles than blocks, parts.
void compare_linear() {
    for (int64_t rows : {1, 4, 5, 8, 9, 16, 17, 40, 64, 65, 128, 129, 200, 256}) {
        time_linear({"odd", rows, 1416, 1000});   // short last tiles and steps
        time_linear({"short", rows, 1416, 1088}); // the same of whole panels
        time_linear({"far", rows, 200, 16384});   // rows that shared memory has no room for
        time_linear({"small", rows, 72, 72});
        time_linear({"tiles", rows, 8448, 1024}); // several of each block
        time_linear({"parts", rows, 1000, 2056}); // of few outputs, a long depth in parts
    }
}

// Lengths around a step, heads of 64, one query head to a key head and more than half of a
// product's rows, windows.
void compare_attention() {
    for (int64_t length : {1, 5, 17, 64, 65, 130, 1000}) {
        time_attention({3, 1, length});
        time_attention({3, 1, length, 32, 8, 64});
        time_attention({2, 1, length, 12, 1, 128});
        time_attention({2, 1, length, 4, 4, 64, 40});
        time_attention({2, 1, length, 16, 1, 128, 100});
    }
    time_attention({2, 70, 300, 12, 4, 64, 100});
    time_attention({2, 200, 300, 12, 4, 128, 100});
    for (int64_t fresh : {2, 64, 65, 128, 129, 192, 193, 300, 391}) {
        time_attention({2, fresh, fresh, 8, 2, 128});
        time_attention({3, fresh, fresh + 131, 4, 4, 128});
        time_attention({1, fresh, 700, 8, 1, 128, 70});
        time_attention({2, fresh, 1000, 4, 2, 128, 257});
        time_attention({3, fresh, fresh + 131, 4, 4, 128, 0, true});
        time_attention({2, fresh, std::max<int64_t>(fresh, 300), 12, 4, 64, 100, true});
    }
    // More sequences than run at once: of one length, of all lengths, of which few blocks have any.
    for (int64_t sequences : {40, 67, 300}) {
        for (int64_t length : {1, 65, 400}) {
            time_attention({sequences, 1, length});
            time_attention({sequences, 1, length, 32, 8, 128, 0, false, 7});
            time_attention({sequences, 1, length, 32, 8, 64, 0, false, 41});
            time_attention({sequences, 1, length, 12, 12, 128, 100, false, 13});
            time_attention({sequences, 1, length, 48, 3, 128, 0, false, 5});
            time_attention({sequences, 1, length, 32, 8, 128, 0, true, 7});
        }
    }
    for (int64_t length : {1, 17, 130, 1000}) {
        time_attention({3, 1, length, 32, 8, 128, 0, true});
        time_attention({2, 1, length, 12, 1, 64, 100, true});
        time_attention({2, 1, length, 16, 1, 128, 0, true});
    }
}

// Of Llama-3-8B.
constexpr struct {
    const char *name;
    int64_t outputs;
    int64_t depth;
} SHAPES[] = {
    {"qkv",     6144,  4096 },
    {"o",       4096,  4096 },
    {"gate_up", 28672, 4096 },
    {"down",    4096,  14336}
};

// Batches of one length, and of all lengths.
void time_decode() {
    for (int64_t sequences : {1, 2, 8, 32, 64, 96, 128, 200, 256}) {
        time_attention({sequences, 1, 592});
    }
    time_attention({1, 1, 8192});
    time_attention({8, 1, 4096});
    time_attention({64, 1, 8192});
    time_attention({64, 1, 8192, HEADS, 8, WIDTH, 0, false, 127});
    time_attention({256, 1, 2048, HEADS, 8, WIDTH, 0, false, 31});
}

// One prompt, and several beside each other.
void time_prefill() {
    for (int64_t tokens : {512, 1024, 2048, 8192}) {
        time_attention({1, tokens, tokens});
    }
    time_attention({8, 512, 512});
    time_attention({1, 8192, 8192, HEADS, 8, WIDTH, 0, true});
}

} // namespace

int main(int count, char **arguments) {
    const bool is_small = count > 1 && strcmp(arguments[1], "small") == 0;
    const bool is_linear = count > 1 && strcmp(arguments[1], "linear") == 0;
    const bool is_decode = count > 1 && strcmp(arguments[1], "decode") == 0;
    const bool is_prefill = count > 1 && strcmp(arguments[1], "prefill") == 0;
    open_device();
    must(cuda_lt_check(&host, &device) == BERTH_OK, "cuBLASLt");
    if (is_small) {
        copy_rate = product_rate = 1;
        compare_linear();
        compare_attention();
        return 0;
    }
    measure_ceilings();
    if (is_decode || is_prefill) {
        is_decode ? time_decode() : time_prefill();
        return 0;
    }
    if (count == 2 || !is_linear) {
        compare_linear();
    }
    if (!is_linear) {
        compare_attention();
    }
    std::vector<int64_t> wanted = {1, 8, 16, 32, 64, 128, 256, 512, 8192};
    if (is_linear && count > 2) {
        wanted.clear();
        for (int i = 2; i < count; ++i) {
            wanted.push_back(std::max(1, atoi(arguments[i])));
        }
    }
    for (int64_t rows : wanted) {
        const bool is_judged = rows == 1 || rows == 8 || rows == 64 || rows >= 512;
        for (const auto &shape : SHAPES) {
            time_linear({shape.name, rows, shape.outputs, shape.depth, is_judged});
        }
    }
    if (is_linear && count > 2) {
        return misses > 0;
    }
    for (int64_t rows : {1, 64, 256}) {
        time_linear({"head", rows, 128256, 4096});
    }
    if (is_linear) {
        return misses > 0;
    }
    time_decode();
    time_prefill();
    time_attention({1, 1, 8192, HEADS, 8, WIDTH, 0, true});
    time_attention({64, 1, 8192, HEADS, 8, WIDTH, 0, true});
    for (int64_t tokens : {1, 64, 256, 65536}) {
        time_rows(&berth_kernel_rms_norm, "rms_norm", tokens);
        time_rows(&berth_kernel_silu_and_mul, "silu_and_mul", tokens);
        time_rows(&berth_kernel_rotary_embedding, "rotary_embedding", tokens);
    }
    return misses > 0;
}
