// SPDX-License-Identifier: Apache-2.0
// platform-dummy: a whole platform in one file, the template that a vendor copies. It needs no
// hardware. A base of its memory is a handle that no processor can follow, so whoever mixes up host
// and device memory crashes in CI and not at a customer's. It has the five required device calls
// and overrides three ops and how one quantization scheme multiplies; every other op runs the
// host's reference on copies ("bounced"), which the operator allows with --allow-fallback.
//
// To make it yours: rename the folder and `dummy`, put your runtime's calls into the five
// functions, and let the forwards launch your kernels. Read it from the last lines up.
#include <math.h>
#include <string.h>

#include <berth/plugin.h>

typedef struct dummy { // the platform's self: what your runtime's context would be
    const berth_host *host;
} dummy;

// ---- device runtime -----------------------------------------------------------------------------

// How the device follows a base, which is the complement of an address.
static void *resolve(const void *base, uint64_t offset) {
    return base ? (char *)~(uintptr_t)base + offset : NULL;
}

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)device; // there is only one
    const berth_host *host = ((dummy *)self)->host;
    void *memory = host->alloc(host, bytes, 0);
    *out_base = (void *)~(uintptr_t)memory;
    return memory ? BERTH_OK
                  : BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "asked for %llu bytes, 0 are free",
                                      (unsigned long long)bytes);
}

static void release(void *self, uint64_t device, void *base) {
    (void)device;
    const berth_host *host = ((dummy *)self)->host;
    host->free(host, resolve(base, 0));
}

static berth_status copy_to_device(void *self, uint64_t device, const berth_copy *copy) {
    (void)self, (void)device;
    memcpy(resolve(copy->destination, copy->destination_offset),
           (const char *)copy->source + copy->source_offset, copy->bytes);
    return BERTH_OK;
}

static berth_status copy_to_host(void *self, uint64_t device, const berth_copy *copy) {
    (void)self, (void)device;
    memcpy((char *)copy->destination + copy->destination_offset,
           resolve(copy->source, copy->source_offset), copy->bytes);
    return BERTH_OK;
}

static berth_status synchronize(void *self, uint64_t device) {
    (void)self, (void)device; // nothing is ever queued
    return BERTH_OK;
}

// ---- ops: they have no `create`, so the self of a forward is its site ---------------------------

// `berth ops explain` shows the text to whoever wonders why a site bounces.
static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_attribute *part = berth_site_attribute(site, "var_hidden_size");
    const berth_attribute *neox = berth_site_attribute(site, "is_neox_style");
    const berth_attribute *type = berth_site_attribute(site, "rope_type");
    int is_known = (!part || part->kind == BERTH_ATTRIBUTE_NONE) && (!neox || neox->i64) &&
                   (!type || strcmp(type->str, "default") == 0);
    for (uint64_t i = 0; i < site->input_count; ++i) {
        const berth_value_type *input = site->inputs[i];
        is_known = is_known && (!input || (i < 3 && (input->dtype == BERTH_DTYPE_F32 ||
                                                     input->dtype == BERTH_DTYPE_I32)));
    }
    return is_known
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only its plain form in f32");
}

// The elements of a row; NULL for an absent tensor.
static float *row_of(const berth_tensor *tensor, int64_t row) {
    return tensor ? (float *)resolve(tensor->data, tensor->byte_offset) +
                        berth_tensor_row_offset(tensor, row)
                  : NULL;
}

// y = x / sqrt(mean(x^2) + eps) * weight; with a residual, x + residual takes x's place and is the
// second output. x, residual and both outputs [..., hidden], weight [hidden].
static berth_status rms_norm(void *self, const berth_op_args *args) {
    const double eps = ((const berth_op_site *)self)->attributes[0]->f64;
    const berth_tensor *x = args->inputs[0];
    const float *weight = row_of(args->inputs[2], 0);
    const int64_t hidden = x->shape[x->ndim - 1];
    for (int64_t row = 0; row < berth_tensor_row_count(x); ++row) {
        const float *from = row_of(x, row);
        const float *residual = row_of(args->inputs[1], row);
        float *y = row_of(args->outputs[0], row);
        float *sum = residual ? row_of(args->outputs[1], row) : y;
        double squares = 0;
        for (int64_t i = 0; i < hidden; ++i) {
            sum[i] = residual ? from[i] + residual[i] : from[i];
            squares += (double)sum[i] * sum[i];
        }
        const float scale = (float)(1 / sqrt(squares / (double)hidden + eps));
        for (int64_t i = 0; i < hidden; ++i) {
            y[i] = sum[i] * scale * (weight ? weight[i] : 1);
        }
    }
    return BERTH_OK;
}

// y[i] = silu(x[i]) * x[d + i]. x [..., 2 d], y [..., d].
static berth_status silu_and_mul(void *self, const berth_op_args *args) {
    (void)self;
    const berth_tensor *y = args->outputs[0];
    const int64_t d = y->shape[y->ndim - 1];
    for (int64_t row = 0; row < berth_tensor_row_count(y); ++row) {
        const float *from = row_of(args->inputs[0], row);
        float *to = row_of(y, row);
        for (int64_t i = 0; i < d; ++i) {
            to[i] = from[i] / (1 + expf(-from[i])) * from[d + i];
        }
    }
    return BERTH_OK;
}

// Elements i and i + rotary_dim / 2 of a head turn together, the others pass through.
// positions [tokens], queries, keys and outputs [tokens, heads, head_size].
static berth_status rotary_embedding(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const int32_t *positions = (const void *)row_of(args->inputs[0], 0);
    const int64_t half = site->attributes[0]->i64 / 2;
    for (uint64_t output = 0; output < site->output_count; ++output) {
        const berth_tensor *x = args->inputs[1 + output];
        for (int64_t row = 0; row < berth_tensor_row_count(x); ++row) {
            const int64_t token = row / x->shape[1];
            const float *from = row_of(x, row);
            float *to = row_of(args->outputs[output], row);
            memcpy(to, from, (size_t)x->shape[2] * sizeof(float));
            for (int64_t i = 0; i < half; ++i) {
                const float period = powf((float)site->attributes[2]->f64, (float)i / (float)half);
                const float angle = (float)positions[token] * (1 / period);
                to[i] = from[i] * cosf(angle) - from[half + i] * sinf(angle);
                to[half + i] = from[half + i] * cosf(angle) + from[i] * sinf(angle);
            }
        }
    }
    return BERTH_OK;
}

#define OVERRIDE(class_name, function, ...)                                                        \
    {                                                                                              \
        .size = sizeof(berth_op_impl), .op = (class_name), .name = "dummy_" #function,             \
        .revision = 1, .supports = supports, .forward = (function),                                \
        .device_types = (const char *const[]){"dummy"}, .device_type_count = 1, __VA_ARGS__        \
    }

// Of rms_norm the folder `fused` has a faster form, which is opened when a plan comes to it. Where
// that file is missing or broken, the one above runs, and the operator is told.
static const berth_op_impl overrides[] = {
    OVERRIDE("RMSNorm", rms_norm, .library = "libberth-platform-dummy-fused.so"),
    OVERRIDE("SiluAndMul", silu_and_mul, .library = NULL),
    OVERRIDE("RotaryEmbedding", rotary_embedding, .library = NULL),
};

// ---- a scheme of another plugin, as this device has it ------------------------------------------

// Which layers are of GPTQ, their tensors and what is made of them stay what they are; only how
// they are multiplied is the device's: its kernel would want rows without gaps.
static berth_value apply_gptq(berth_builder *builder, const berth_linear *linear,
                              const berth_value *weights, berth_value x) {
    const berth_value rows =
        BERTH_EMIT(builder, "contiguous", .prefix = linear->prefix, BERTH_INPUTS(x));
    return linear->quant->inherit(linear)->apply(builder, linear, weights, rows);
}

static const berth_quant_method gptq_method = {
    .size = sizeof(berth_quant_method),
    .name = "dummy: rows without gaps",
    .apply = apply_gptq,
};

// NULL where the scheme leaves the layer to another, or refuses it.
static const berth_quant_method *get_gptq_method(const berth_host *host, const berth_json *config,
                                                 const berth_linear *linear) {
    (void)host, (void)config;
    return linear->quant->inherit(linear) ? &gptq_method : NULL;
}

static const berth_quant_config gptq = {
    .size = sizeof(berth_quant_config),
    .name = "gptq",
    .get_quant_method = get_gptq_method,
};

// ---- platform -----------------------------------------------------------------------------------

static berth_status register_ops(void *self, const berth_config *config,
                                 berth_registrar *registrar) {
    (void)self, (void)config;
    berth_status status = BERTH_OK;
    for (size_t i = 0; status == BERTH_OK && i < sizeof overrides / sizeof overrides[0]; ++i) {
        status = registrar->add_op_override(registrar, &overrides[i], 0);
    }
    return status == BERTH_OK
               ? registrar->add_quant_config(registrar, &gptq, BERTH_REGISTER_REPLACE)
               : status;
}

static berth_status device_count(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 1;
    return BERTH_OK;
}

static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    (void)self, (void)device;
    out->name = "dummy device";
    out->memory_bytes = UINT64_C(1) << 30;
    return BERTH_OK;
}

static void destroy(void *self) {
    const berth_host *host = ((dummy *)self)->host;
    host->free(host, self);
}

static const berth_dtype dtypes[] = {BERTH_DTYPE_F32};

static const berth_capabilities capabilities = {
    .size = sizeof(berth_capabilities),
    .dtypes = dtypes, // what activations may be; your kernels decide
    .dtype_count = 1,
    .memory_type = BERTH_MEMORY_EXTENSION,
};

static const berth_device_api device_api = {
    .size = sizeof(berth_device_api),
    .allocate = allocate,
    .release = release,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .synchronize = synchronize,
};

static const berth_platform platform = {
    .size = sizeof(berth_platform),
    .name = "dummy",
    .vendor = "berth",
    .kind = BERTH_PLATFORM_OOT,
    .device_type = "dummy",
    .device_name = "dummy device",
    .dispatch_key = BERTH_DISPATCH_OOT,
    .capabilities = &capabilities,
    .device = &device_api,
    .device_count = device_count,
    .device_info = device_info,
    .register_ops = register_ops,
    .destroy = destroy,
};

// Yours looks for its hardware first, and where there is none fails with BERTH_DECLINED and a text.
static berth_status register_platform(const berth_host *host, berth_registrar *registrar) {
    dummy *self = host->alloc(host, sizeof *self, 0);
    if (!self) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for the platform");
    }
    self->host = host;
    const berth_status status = registrar->add_platform(registrar, &platform, self);
    if (status != BERTH_OK) {
        host->free(host, self);
    }
    return status;
}

static const berth_entry_point entry_point = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_PLATFORM,
    .name = "dummy",
    .register_plugin = register_platform,
};

BERTH_PLUGIN_DEFINE(.id = "dummy", .version = "0.1.0", .vendor = "berth", .entry_point_count = 1,
                    .entry_points = (const berth_entry_point *const[]){&entry_point});
