// SPDX-License-Identifier: Apache-2.0
// platform-cpu: the processor the host runs on. Its memory is host memory; its kernels are listed
// by their folder and need oneDNN.
#include <berth/plugin.h>

#include <cpu/cpu.h>

#include <stdio.h>
#include <unistd.h>

extern const berth_op_impl *const berth_cpu_kernels[]; // generated, ends with NULL

// What kernels may see comes first, so that a pointer to it is a pointer to a berth_cpu.
typedef struct cpu_platform {
    berth_cpu cpu;
    char name[128];
} cpu_platform;

// ---- device runtime -----------------------------------------------------------------------------

// Bytes of memory that can be had without swapping, or of all there is; 0 when it is not known.
static uint64_t available_bytes(void) {
    unsigned long long kibibytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kibibytes) == 1) {
            break;
        }
    }
    if (file) {
        (void)fclose(file);
    }
    return kibibytes * 1024;
}

static uint64_t total_bytes(void) {
    const long pages = sysconf(_SC_PHYS_PAGES);
    const long page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

static berth_status memory_info(void *self, uint64_t device, uint64_t *out_free,
                                uint64_t *out_total) {
    (void)self;
    (void)device;
    *out_free = available_bytes();
    *out_total = total_bytes();
    return BERTH_OK;
}

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)device;
    const berth_host *host = ((const berth_cpu *)self)->host;
    *out_base = host->alloc(host, bytes, 0);
    return *out_base
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "asked for %llu bytes, %llu are free",
                                   (unsigned long long)bytes,
                                   (unsigned long long)available_bytes());
}

static void release(void *self, uint64_t device, void *base) {
    (void)device;
    const berth_host *host = ((const berth_cpu *)self)->host;
    host->free(host, base);
}

// In every direction: both sides are host memory.
static berth_status copy(void *self, uint64_t device, const berth_copy *what) {
    (void)self;
    (void)device;
    if (what->bytes > 0) {
        memmove((char *)what->destination + what->destination_offset,
                (const char *)what->source + what->source_offset, what->bytes);
    }
    return BERTH_OK;
}

static berth_status synchronize(void *self, uint64_t device) {
    (void)self; // a kernel has ended when its forward returns
    (void)device;
    return BERTH_OK;
}

static const berth_device_api device_api = {
    .size = sizeof(berth_device_api),
    .allocate = allocate,
    .release = release,
    .copy_to_device = copy,
    .copy_to_host = copy,
    .synchronize = synchronize,
    .copy_on_device = copy,
    .memory_info = memory_info,
};

// ---- platform -----------------------------------------------------------------------------------

static berth_status device_count(void *self, uint64_t *out_count) {
    (void)self;
    *out_count = 1;
    return BERTH_OK;
}

// The processor's model name; "CPU" where the system does not tell.
static void read_name(char *name, size_t size) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    (void)snprintf(name, size, "CPU");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = 0;
            (void)snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
            break;
        }
    }
    if (file) {
        (void)fclose(file);
    }
}

static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    (void)device;
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    out->name = ((const cpu_platform *)self)->name;
    out->uuid = "";
    out->memory_bytes = total_bytes();
    out->compute_units = cores > 0 ? (uint64_t)cores : 1;
    return BERTH_OK;
}

static berth_status register_ops(void *self, const berth_config *config,
                                 berth_registrar *registrar) {
    berth_cpu *cpu = self;
    berth_status status = cpu->host->config_get_i64(config, "threads", &cpu->threads);
    for (const berth_op_impl *const *kernel = berth_cpu_kernels; status == BERTH_OK && *kernel;
         ++kernel) {
        status = registrar->add_op_impl(registrar, *kernel, 0);
    }
    return status;
}

static void destroy(void *self) {
    const berth_host *host = ((const berth_cpu *)self)->host;
    host->free(host, self);
}

static const berth_dtype dtypes[] = {BERTH_DTYPE_F32, BERTH_DTYPE_BF16, BERTH_DTYPE_F16};

static const berth_capabilities capabilities = {
    .size = sizeof(berth_capabilities),
    .flags = BERTH_CAPABILITY_HOST_MEMORY,
    .dtypes = dtypes,
    .dtype_count = sizeof dtypes / sizeof dtypes[0],
    .memory_type = BERTH_MEMORY_HOST,
    .alignment_bytes = 64,
};

static const berth_platform platform = {
    .size = sizeof(berth_platform),
    .name = "cpu",
    .vendor = "berth",
    .kind = BERTH_PLATFORM_CPU,
    .device_type = "cpu",
    .device_name = "CPU",
    .capabilities = &capabilities,
    .device = &device_api,
    .device_count = device_count,
    .device_info = device_info,
    .register_ops = register_ops,
    .destroy = destroy,
};

static berth_status register_cpu(const berth_host *host, berth_registrar *registrar) {
    cpu_platform *self = host->alloc(host, sizeof *self, 0);
    if (!self) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for the platform");
    }
    self->cpu.host = host;
    read_name(self->name, sizeof self->name);
    const berth_status status = registrar->add_platform(registrar, &platform, self);
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

static const berth_entry_point entry_point = {
    .size = sizeof entry_point,
    .group = BERTH_GROUP_PLATFORM,
    .name = "cpu",
    .register_plugin = register_cpu,
};
static const berth_entry_point *const entry_points[] = {&entry_point};

BERTH_PLUGIN_DEFINE(.id = "cpu", .version = "0.1.0", .vendor = "berth",
                    .entry_points = entry_points, .entry_point_count = 1);
