// SPDX-License-Identifier: Apache-2.0
// cuBLASLt: opened when a plan first asks for it, never linked. For every shape of weights its
// algorithms are timed once per bucket of rows (lt_choose.cu), and the fastest are kept in the
// host's cache, from which a later start takes them; a step only looks its bucket up.
#include <cuda/product/lt.h>

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>

// ---- opening ------------------------------------------------------------------------------------

static void close_products(berth_gpu *gpu) {
    cuda_lt_library *all = static_cast<cuda_lt_library *>(gpu->products);
    for (cuda_lt *shape = all->shapes; shape;) {
        cuda_lt *next = shape->next;
        (void)all->call.cublasLtMatmulDescDestroy(shape->description);
        all->host->free(all->host, shape);
        shape = next;
    }
    if (all->preference) {
        (void)all->call.cublasLtMatmulPreferenceDestroy(all->preference);
    }
    if (all->handle) {
        (void)all->call.cublasLtDestroy(all->handle);
    }
    all->host->free(all->host, all); // the library stays: it cannot be relied on to leave
    gpu->products = nullptr;
}

static berth_status find_functions(const berth_host *host, cuda_lt_library *all) {
#define FIND(name)                                                                                 \
    all->call.name = reinterpret_cast<decltype(&::name)>(dlsym(all->library, #name));              \
    if (!all->call.name) {                                                                         \
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "cuBLASLt has no %s", #name);            \
    }
    CUDA_LT_FUNCTIONS(FIND)
#undef FIND
    return BERTH_OK;
}

static berth_status open_library(berth_gpu *gpu) {
    const berth_host *host = gpu->host;
    char name[64];
    if (gpu->products) {
        return BERTH_OK;
    }
    (void)snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        return BERTH_PLUGIN_FAIL(host, BERTH_UNSUPPORTED, "%s", dlerror());
    }
    cuda_lt_library *all =
        static_cast<cuda_lt_library *>(host->alloc(host, sizeof(cuda_lt_library), 0));
    if (!all) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for cuBLASLt");
    }
    all->host = host;
    all->library = library;
    const berth_status status = find_functions(host, all);
    if (status != BERTH_OK) {
        host->free(host, all);
        return status;
    }
    gpu->products = all;
    gpu->release_products = close_products;
    return BERTH_OK;
}

berth_status cuda_lt_check(const berth_host *host, const berth_device *device) {
    (void)host;
    return open_library(static_cast<berth_gpu *>(device->self));
}

static berth_status failed(const berth_host *host, const char *call, cublasStatus_t status) {
    return BERTH_PLUGIN_FAIL(host, BERTH_UNAVAILABLE, "%s: cuBLAS status %d", call, (int)status);
}

#define TRY_LT(host, call, ...)                                                                    \
    do {                                                                                           \
        const cublasStatus_t status_ = (call)(__VA_ARGS__);                                        \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                                                    \
            return failed((host), #call, status_);                                                 \
        }                                                                                          \
    } while (0)

// A handle belongs to the device that is current.
static berth_status open_handle(cuda_lt_library *all) {
    const size_t workspace = CUDA_LT_WORKSPACE;
    if (all->handle) {
        return BERTH_OK;
    }
    TRY_LT(all->host, all->call.cublasLtMatmulPreferenceCreate, &all->preference);
    TRY_LT(all->host, all->call.cublasLtMatmulPreferenceSetAttribute, all->preference,
           CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    TRY_LT(all->host, all->call.cublasLtCreate, &all->handle);
    return BERTH_OK;
}

// ---- one product --------------------------------------------------------------------------------

static cudaDataType_t type_of(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32         ? CUDA_R_32F
           : dtype == BERTH_DTYPE_BF16      ? CUDA_R_16BF
           : dtype == BERTH_DTYPE_F16       ? CUDA_R_16F
           : dtype == BERTH_DTYPE_F8_E4M3FN ? CUDA_R_8F_E4M3
           : dtype == BERTH_DTYPE_I8        ? CUDA_R_8I
                                            : CUDA_R_32I;
}

// Whether the library scales.
static bool has_scales(const cuda_product &p) {
    return p.codes == BERTH_DTYPE_F8_E4M3FN && p.dtype != BERTH_DTYPE_F32;
}

static berth_status lay_out(const cuda_lt_library *all, const cuda_product &p,
                            cuda_lt_layouts *out) {
    const cudaDataType_t type = type_of(cuda_lt_operand(p));
    const auto init = all->call.cublasLtMatrixLayoutInit_internal;
    const uint64_t rows = static_cast<uint64_t>(p.rows);
    const uint64_t outputs = static_cast<uint64_t>(p.outputs);
    const uint64_t depth = static_cast<uint64_t>(p.depth);
    TRY_LT(all->host, init, &out->weight, sizeof out->weight, type, depth, outputs, p.depth);
    TRY_LT(all->host, init, &out->x, sizeof out->x, type, depth, rows, p.x_gap);
    TRY_LT(all->host, init, &out->y, sizeof out->y, type_of(p.dtype), outputs, rows, p.y_gap);
    return BERTH_OK;
}

// What a description knows by its address.
static berth_status point(const cuda_lt *lt, const cuda_product &p) {
    const cuda_lt_library *all = lt->all;
    const auto set = all->call.cublasLtMatmulDescSetAttribute;
    if (p.bias) {
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias,
               sizeof p.bias);
    }
    if (has_scales(p)) {
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p.scales,
               sizeof p.scales);
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p.x_scales,
               sizeof p.x_scales);
    }
    return BERTH_OK;
}

berth_status cuda_lt_describe(const cuda_lt *lt, const cuda_product &p, cuda_lt_layouts *out) {
    const berth_status status = lay_out(lt->all, p, out);
    return status == BERTH_OK ? point(lt, p) : status;
}

int cuda_lt_propose(const cuda_lt *lt, cuda_lt_layouts *with,
                    cublasLtMatmulHeuristicResult_t *results, int wanted) {
    int found = 0;
    const cuda_lt_library *all = lt->all;
    const cublasStatus_t status = all->call.cublasLtMatmulAlgoGetHeuristic(
        all->handle, lt->description, &with->weight, &with->x, &with->y, &with->y, all->preference,
        wanted, results, &found);
    return status == CUBLAS_STATUS_SUCCESS ? found : 0;
}

cublasStatus_t cuda_lt_ask(const cuda_lt *lt, cuda_lt_layouts *with,
                           const cublasLtMatmulAlgo_t *algorithm) {
    const cuda_lt_library *all = lt->all;
    cublasLtMatmulHeuristicResult_t result = {};
    const cublasStatus_t status =
        all->call.cublasLtMatmulAlgoCheck(all->handle, lt->description, &with->weight, &with->x,
                                          &with->y, &with->y, algorithm, &result);
    return status == CUBLAS_STATUS_SUCCESS && result.workspaceSize > CUDA_LT_WORKSPACE
               ? CUBLAS_STATUS_NOT_SUPPORTED
               : status;
}

cublasStatus_t cuda_lt_multiply(const cuda_lt *lt, cuda_lt_layouts *with, const cuda_product &p,
                                const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                                cudaStream_t stream) {
    const float one = 1;
    const float zero = 0;
    const int32_t whole_one = 1;
    const int32_t whole_zero = 0;
    const bool is_whole = p.codes == BERTH_DTYPE_I8;
    const void *alpha = is_whole ? static_cast<const void *>(&whole_one) : &one;
    const void *beta = is_whole ? static_cast<const void *>(&whole_zero) : &zero;
    return lt->all->call.cublasLtMatmul(lt->all->handle, lt->description, alpha, p.weight,
                                        &with->weight, p.x, &with->x, beta, p.y, &with->y, p.y,
                                        &with->y, algorithm, workspace, CUDA_LT_WORKSPACE, stream);
}

static int bucket_of(const cuda_lt *lt, int rows) {
    int at = 0;
    while (at < lt->count - 1 && lt->buckets[at].rows < rows) {
        ++at;
    }
    return at;
}

static const cublasLtMatmulAlgo_t *algorithm_of(const cuda_choice &choice) {
    return reinterpret_cast<const cublasLtMatmulAlgo_t *>(choice.algorithm);
}

float cuda_lt_milliseconds(const cuda_lt *lt, int rows) {
    return lt->count > 0 ? lt->buckets[bucket_of(lt, rows)].milliseconds : -1;
}

berth_status cuda_lt_run(const gpu_op *op, const cuda_lt *lt, const cuda_product &product,
                         void *workspace) {
    cuda_lt_layouts with;
    const berth_status ready = cuda_lt_describe(lt, product, &with);
    if (ready != BERTH_OK) {
        return ready;
    }
    const int at = bucket_of(lt, product.rows);
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (lt->count > 0) {
        status = cuda_lt_multiply(lt, &with, product, algorithm_of(lt->buckets[at]), workspace,
                                  op->stream);
    }
    // Why: an algorithm may not take every number of rows of its bucket.
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
        cublasLtMatmulHeuristicResult_t result;
        if (cuda_lt_propose(lt, &with, &result, 1) > 0) {
            status = cuda_lt_multiply(lt, &with, product, &result.algo, workspace, op->stream);
        }
    }
    return status == CUBLAS_STATUS_SUCCESS ? BERTH_OK : failed(op->host, "cublasLtMatmul", status);
}

// ---- keeping ------------------------------------------------------------------------------------

// Where the choices of a shape are kept, and what they rest on.
struct label {
    char name[128];
    char key[512];
};

static const char *text_of(berth_dtype dtype) {
    return dtype == BERTH_DTYPE_F32         ? "f32"
           : dtype == BERTH_DTYPE_BF16      ? "bf16"
           : dtype == BERTH_DTYPE_F16       ? "f16"
           : dtype == BERTH_DTYPE_F8_E4M3FN ? "e4m3"
           : dtype == BERTH_DTYPE_I8        ? "i8"
                                            : "i32";
}

// Why the device is in the name, too: two kinds of them in one machine, or in machines that share a
// home, would take each other's place.
static void print_label(const gpu_op *op, const cuda_lt *lt, label *out) {
    constexpr int WAY = 3; // in which choices are made here; another one has another number
    const cuda_product &p = lt->shape;
    int driver = 0;
    cudaDeviceProp device = {};
    (void)cudaDriverGetVersion(&driver);
    (void)cudaGetDeviceProperties(&device, static_cast<int>(op->device));
    (void)snprintf(out->key, sizeof out->key,
                   "products %d\n%s, %d.%d, %d multiprocessors\ncuBLASLt %zu\nCUDA %d", WAY,
                   device.name, device.major, device.minor, device.multiProcessorCount,
                   lt->all->call.cublasLtGetVersion(), driver);
    for (char *at = device.name; *at != '\0'; ++at) {
        *at = isalnum(static_cast<unsigned char>(*at)) ? *at : '_';
    }
    (void)snprintf(out->name, sizeof out->name, "product-%s-%s-%dx%d%s-%d-%.48s", text_of(p.dtype),
                   text_of(cuda_lt_operand(p)), p.outputs, p.depth, p.bias ? "-bias" : "", p.rows,
                   device.name);
}

// What cuBLASLt says of a choice of an earlier start.
static cublasStatus_t ask(const cuda_lt *lt, const cuda_choice &choice) {
    cuda_lt_layouts with;
    cuda_product p = lt->shape;
    p.rows = choice.rows;
    // That there are scales is looked at, what they are is not.
    p.scales = reinterpret_cast<const float *>(lt);
    p.x_scales = p.scales;
    return cuda_lt_describe(lt, p, &with) == BERTH_OK ? cuda_lt_ask(lt, &with, algorithm_of(choice))
                                                      : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t ask_all(const cuda_lt *lt) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < lt->count && status == CUBLAS_STATUS_SUCCESS; ++i) {
        status = ask(lt, lt->buckets[i]);
    }
    return status;
}

// Whether an earlier start has left choices that can be used; they are the shape's then.
static bool take_kept(const gpu_op *op, cuda_lt *lt, const label &kept) {
    const berth_host *host = op->host;
    void *bytes = nullptr;
    uint64_t size = 0;
    if (!BERTH_HAS(host, cache_read) ||
        host->cache_read(host, kept.name, kept.key, &bytes, &size) != BERTH_OK) {
        return false;
    }
    lt->count = cuda_choices_take(bytes, size, lt->shape.rows, lt->buckets);
    host->free(host, bytes);
    const cublasStatus_t status = ask_all(lt);
    if (lt->count > 0 && status == CUBLAS_STATUS_SUCCESS) {
        BERTH_PLUGIN_LOG(host, BERTH_LOG_DEBUG, "cuda", "%s: %d choices of an earlier start",
                         kept.name, lt->count);
        return true;
    }
    BERTH_PLUGIN_LOG(host, BERTH_LOG_WARN, "cuda", "%s: what was kept is ignored: %s (status %d)",
                     kept.name,
                     lt->count > 0 ? "cuBLASLt takes no such algorithm" : "it is no such list",
                     static_cast<int>(status));
    lt->count = 0;
    return false;
}

// What was not timed is not worth keeping.
static void keep(const gpu_op *op, const cuda_lt *lt, const label &as) {
    const berth_host *host = op->host;
    cuda_choice read_back[CUDA_CHOICES_MAX];
    const uint64_t size = static_cast<uint64_t>(lt->count) * sizeof(cuda_choice);
    if (BERTH_HAS(host, cache_write) &&
        cuda_choices_take(lt->buckets, size, lt->shape.rows, read_back) > 0) {
        (void)host->cache_write(host, as.name, as.key, lt->buckets, size);
    }
}

// ---- one shape ----------------------------------------------------------------------------------

// Why no fast sums: over 14336 products they were wrong by 5 % of the largest result, and the time
// that they save is a tenth.
static berth_status describe_scales(const cuda_lt_library *all, const cuda_lt *lt) {
    const auto set = all->call.cublasLtMatmulDescSetAttribute;
    const int32_t by_vector = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &by_vector,
           sizeof by_vector);
    TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &by_vector,
           sizeof by_vector);
    return BERTH_OK;
}

static berth_status describe(const cuda_lt_library *all, cuda_lt *lt) {
    const cublasOperation_t turned = CUBLAS_OP_T;
    const cublasLtEpilogue_t with_bias = CUBLASLT_EPILOGUE_BIAS;
    const auto set = all->call.cublasLtMatmulDescSetAttribute;
    const bool is_whole = lt->shape.codes == BERTH_DTYPE_I8;
    TRY_LT(all->host, all->call.cublasLtMatmulDescCreate, &lt->description,
           is_whole ? CUBLAS_COMPUTE_32I : CUBLAS_COMPUTE_32F, is_whole ? CUDA_R_32I : CUDA_R_32F);
    TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned);
    if (lt->shape.bias) {
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_EPILOGUE, &with_bias,
               sizeof with_bias);
        TRY_LT(all->host, set, lt->description, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &lt->shape.bias,
               sizeof lt->shape.bias);
    }
    return has_scales(lt->shape) ? describe_scales(all, lt) : BERTH_OK;
}

static bool is_same(const cuda_product &a, const cuda_product &b) {
    return a.outputs == b.outputs && a.depth == b.depth && a.dtype == b.dtype &&
           a.codes == b.codes && !a.bias == !b.bias && a.rows == b.rows;
}

berth_status cuda_lt_open(const gpu_op *op, const cuda_product &shape, int max_rows,
                          const cuda_lt **out) {
    cuda_lt_library *all = static_cast<cuda_lt_library *>(op->gpu->products);
    const berth_status status = open_handle(all);
    if (status != BERTH_OK) {
        return status;
    }
    cuda_product wanted = shape;
    wanted.rows = max_rows;
    wanted.x_gap = shape.depth;
    wanted.y_gap = shape.outputs;
    for (const cuda_lt *one = all->shapes; one; one = one->next) {
        if (is_same(one->shape, wanted)) {
            *out = one;
            return BERTH_OK;
        }
    }
    cuda_lt *lt = static_cast<cuda_lt *>(op->host->alloc(op->host, sizeof(cuda_lt), 0));
    if (!lt) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_OUT_OF_MEMORY, "no memory for a product");
    }
    lt->all = all;
    lt->shape = wanted;
    const berth_status described = describe(all, lt);
    if (described != BERTH_OK) {
        op->host->free(op->host, lt);
        return described;
    }
    label kept;
    print_label(op, lt, &kept);
    if (!take_kept(op, lt, kept)) {
        cuda_lt_choose(op, lt, max_rows);
        BERTH_PLUGIN_LOG(op->host, BERTH_LOG_DEBUG, "cuda", "%s: %d choices timed", kept.name,
                         lt->count);
        keep(op, lt, kept);
    }
    lt->next = all->shapes;
    all->shapes = lt;
    *out = lt;
    return BERTH_OK;
}
