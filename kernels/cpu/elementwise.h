// SPDX-License-Identifier: Apache-2.0
// What activations share: functions of a vector, the instance, the sweep over rows. A kernel is its
// formula and a table.
//
// A formula gets vectors of floats, the numbers that its create kept, and the dtype of the result
// as a constant. All is computed in float32; the one rounding is the store's, where a formula does
// not ask for more. A NaN goes through.
#ifndef BERTH_KERNELS_CPU_ELEMENTWISE_H
#define BERTH_KERNELS_CPU_ELEMENTWISE_H

#include <cpu/cpu.h>
#include <cpu/simd.h>

// ---- functions of a vector ----------------------------------------------------------------------

// `a` in the lanes where the comparison holds, else `b`.
BERTH_INLINE berth_vec berth_vec_pick(berth_vec_ints holds, berth_vec a, berth_vec b) {
    const berth_vec_bits mask = (berth_vec_bits)holds;
    return (berth_vec)(((berth_vec_bits)a & mask) | ((berth_vec_bits)b & ~mask));
}

BERTH_INLINE berth_vec berth_vec_at_most(berth_vec a, berth_vec limit) {
    return berth_vec_pick((berth_vec_ints)(a > limit), limit, a);
}

BERTH_INLINE berth_vec berth_vec_clamp(berth_vec a, berth_vec limit) {
    return berth_vec_pick((berth_vec_ints)(a < -limit), -limit, berth_vec_at_most(a, limit));
}

BERTH_INLINE berth_vec berth_vec_abs(berth_vec a) {
    return (berth_vec)((berth_vec_bits)a & 0x7fffffffu);
}

// The first with the second's sign.
BERTH_INLINE berth_vec berth_vec_with_sign(berth_vec a, berth_vec sign) {
    return (berth_vec)(((berth_vec_bits)a & 0x7fffffffu) | ((berth_vec_bits)sign & 0x80000000u));
}

BERTH_INLINE berth_vec berth_vec_sigmoid(berth_vec x) {
    return berth_vec_of(1) / (berth_vec_of(1) + berth_vec_exp(-x));
}

BERTH_INLINE berth_vec berth_vec_silu(berth_vec x) {
    return x / (berth_vec_of(1) + berth_vec_exp(-x));
}

// The polynomial of x with `count` coefficients, the constant one first.
BERTH_INLINE berth_vec berth_vec_polynomial(const float *coefficients, int count, berth_vec x) {
    berth_vec sum = berth_vec_of(coefficients[count - 1]);
    BERTH_UNROLL
    for (int i = count - 2; i >= 0; --i) {
        sum = berth_vec_fma(sum, x, berth_vec_of(coefficients[i]));
    }
    return sum;
}

// Within 2 units in the last place. Near 0 x + x³·p(x²), interpolated at Chebyshev nodes; elsewhere
// by e^(−2|x|).
BERTH_INLINE berth_vec berth_vec_tanh(berth_vec x) {
    static const float near[] = {-0x1.555556p-2f, 0x1.1110e4p-3f,  -0x1.ba0718p-5f,
                                 0x1.648e8ep-6f,  -0x1.10bbf4p-7f, 0x1.2977d6p-9f};
    const berth_vec square = x * x;
    const berth_vec small = berth_vec_fma(x * square, berth_vec_polynomial(near, 6, square), x);
    const berth_vec size = berth_vec_abs(x);
    const berth_vec power = berth_vec_exp(berth_vec_of(-2) * size);
    const berth_vec large = (berth_vec_of(1) - power) / (berth_vec_of(1) + power);
    return berth_vec_pick((berth_vec_ints)(size < 0.625f), small, berth_vec_with_sign(large, x));
}

// Within 3·2^-24: 1 − e^(−x²)·p(1 / (1 + |x|/2)), p interpolated at Chebyshev nodes. Beyond 4 the
// result is 1.
BERTH_INLINE berth_vec berth_vec_erf(berth_vec x) {
    static const float tail[] = {-0x1.5c1052p-12f, 0x1.268b84p-2f, 0x1.ef291cp-3f,  0x1.a6e930p-2f,
                                 -0x1.f71ffap-3f,  0x1.7e5a5ep-1f, -0x1.300acep-1f, 0x1.0ef128p-3f,
                                 0x1.0c692cp-5f,   -0x1.d8e302p-7f};
    const berth_vec size = berth_vec_at_most(berth_vec_abs(x), berth_vec_of(4));
    const berth_vec t = berth_vec_of(1) / berth_vec_fma(size, berth_vec_of(0.5f), berth_vec_of(1));
    const berth_vec rest = berth_vec_polynomial(tail, 10, t) * berth_vec_exp(-size * size);
    return berth_vec_with_sign(berth_vec_of(1) - rest, x);
}

BERTH_INLINE berth_vec berth_vec_gelu_erf(berth_vec x) {
    const berth_vec erf = berth_vec_erf(x * berth_vec_of(0.70710678118654752440f));
    return berth_vec_of(0.5f) * x * (berth_vec_of(1) + erf);
}

BERTH_INLINE berth_vec berth_vec_gelu_tanh(berth_vec x) {
    const berth_vec cube = berth_vec_of(0.044715f) * x * x * x;
    const berth_vec inner = berth_vec_of(0.79788456080286535588f) * (x + cube);
    return berth_vec_of(0.5f) * x * (berth_vec_of(1) + berth_vec_tanh(inner));
}

// ---- instance -----------------------------------------------------------------------------------

#define BERTH_ACTIVATION_NUMBERS 4

// Begins as berth_instance does.
typedef struct berth_activation {
    const berth_host *host;
    const berth_cpu *cpu;
    float numbers[BERTH_ACTIVATION_NUMBERS]; // what `create` made of the attributes
    int64_t flag;
} berth_activation;

static inline berth_status berth_activation_new(const berth_op_site *site,
                                                const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(berth_activation), out_self);
    if (status == BERTH_OK) {
        ((berth_activation *)*out_self)->cpu = device->self;
    }
    return status;
}

// The f64 attributes of the op, in its order, as numbers; an absent one is 0.
static inline berth_status berth_activation_create(const berth_op_site *site,
                                                   const berth_device *device, void **out_self) {
    const berth_status status = berth_activation_new(site, device, out_self);
    uint64_t count = 0;
    for (uint64_t i = 0; status == BERTH_OK && i < site->op->attribute_count; ++i) {
        if (site->op->attributes[i]->kind == BERTH_ATTRIBUTE_F64 &&
            count < BERTH_ACTIVATION_NUMBERS) {
            ((berth_activation *)*out_self)->numbers[count++] = (float)site->attributes[i]->f64;
        }
    }
    return status;
}

// The same, and in `flag` whether the attribute `approximate` is tanh.
static inline berth_status berth_gelu_create(const berth_op_site *site, const berth_device *device,
                                             void **out_self) {
    const berth_status status = berth_activation_create(site, device, out_self);
    if (status == BERTH_OK) {
        ((berth_activation *)*out_self)->flag =
            strcmp(berth_site_attribute(site, "approximate")->str, "tanh") == 0;
    }
    return status;
}

// ---- rows ---------------------------------------------------------------------------------------

// y = formula(x); of gated ops `b` is what stands `width` elements after `a`, of others zero.
typedef berth_vec (*berth_vec_formula)(const berth_activation *self, berth_dtype dtype, berth_vec a,
                                       berth_vec b);

typedef struct berth_sweep {
    const berth_activation *self;
    const berth_op_args *args;
    int64_t width; // of y
} berth_sweep;

BERTH_INLINE void berth_sweep_unary_row(const berth_sweep *in, berth_vec_formula formula,
                                        berth_dtype dtype, const void *x, void *y) {
    for (int64_t first = 0; first < in->width; first += BERTH_LANES) {
        const berth_vec a = berth_vec_load_some(x, dtype, first, in->width);
        berth_vec_store_some(y, dtype, first, in->width,
                             formula(in->self, dtype, a, berth_vec_of(0)));
    }
}

BERTH_INLINE void berth_sweep_gated_row(const berth_sweep *in, berth_vec_formula formula,
                                        berth_dtype dtype, const void *x, void *y) {
    for (int64_t first = 0; first < in->width; first += BERTH_LANES) {
        const berth_vec a = berth_vec_load_some(x, dtype, first, in->width);
        const berth_vec b = berth_vec_load_some(x, dtype, in->width + first, 2 * in->width);
        berth_vec_store_some(y, dtype, first, in->width, formula(in->self, dtype, a, b));
    }
}

typedef void (*berth_sweep_row)(const berth_sweep *in, berth_vec_formula formula, berth_dtype dtype,
                                const void *x, void *y);

// A part's rows; `row` and `formula` are constants where this is inlined.
BERTH_INLINE void berth_sweep_part(const berth_sweep *in, berth_sweep_row row,
                                   berth_vec_formula formula, berth_span rows) {
    const berth_rows from = berth_rows_of(in->args->inputs[0]);
    const berth_rows to = berth_rows_of(in->args->outputs[0]);
    const berth_dtype dtype = in->args->outputs[0]->dtype;
    for (int64_t i = rows.first; i < rows.end; ++i) {
        const void *x = berth_rows_at(&from, i);
        void *y = berth_rows_at(&to, i);
        if (dtype == BERTH_DTYPE_F32) {
            row(in, formula, BERTH_DTYPE_F32, x, y);
        } else if (dtype == BERTH_DTYPE_BF16) {
            row(in, formula, BERTH_DTYPE_BF16, x, y);
        } else {
            row(in, formula, BERTH_DTYPE_F16, x, y);
        }
    }
}

// An e^x is worth many copies.
#define BERTH_SWEEP_COST 4

static inline berth_status berth_sweep_run(void *self, const berth_op_args *args,
                                           berth_work_fn part) {
    const berth_tensor *y = args->outputs[0];
    const berth_sweep in = {.self = self, .args = args, .width = berth_row_length(y)};
    berth_run(in.self->cpu, part, &in, BERTH_SWEEP_COST * berth_row_count(y) * in.width);
    return BERTH_OK;
}

BERTH_INLINE berth_vec berth_formula_gelu_tanh(const berth_activation *self, berth_dtype dtype,
                                               berth_vec x, berth_vec unused) {
    (void)self;
    (void)dtype;
    (void)unused;
    return berth_vec_gelu_tanh(x);
}

// The part and the forward of a kernel of that formula: `shape` is unary or gated.
#define BERTH_SWEEP(shape, formula)                                                                \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        const berth_sweep *in = work;                                                              \
        berth_sweep_part(in, berth_sweep_##shape##_row, formula,                                   \
                         berth_share(berth_row_count(in->args->outputs[0]), part, parts));         \
    }                                                                                              \
    static berth_status forward(void *self, const berth_op_args *args) {                           \
        return berth_sweep_run(self, args, part_of);                                               \
    }

// What the table of an activation's kernel begins with.
#define BERTH_ACTIVATION_KERNEL(op_name, op_create)                                                \
    .size = sizeof(berth_op_impl), .op = (op_name), .name = "cpu." op_name,                        \
    .dispatch_key = BERTH_DISPATCH_CPU, .flags = BERTH_IMPL_DETERMINISTIC,                         \
    .supports = berth_supports_same, .create = (op_create), .forward = forward,                    \
    .destroy = berth_instance_free

#endif
