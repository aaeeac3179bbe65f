// SPDX-License-Identifier: Apache-2.0
// platform-cpu: the processor the host runs on. Its memory is host memory; its kernels are listed
// by their folder, once for each instruction set. The best set that the machine has is taken, or
// the one that BERTH_CPU_ISA names.
#include <berth/plugin.h>

#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool.h"

// Generated, end with NULL. Weak: not every build has every set.
extern const berth_op_impl *const berth_cpu_avx512_kernels[] __attribute__((weak));
extern const berth_op_impl *const berth_cpu_avx2_kernels[] __attribute__((weak));
extern const berth_op_impl *const berth_cpu_portable_kernels[] __attribute__((weak));

// What kernels may see comes first, so that a pointer to it is a pointer to a berth_cpu.
typedef struct cpu_platform {
    berth_cpu cpu;
    cpu_pool *pool; // NULL until the device is open
    const berth_op_impl *const *kernels;
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

#define HUGE_PAGE   ((uint64_t)2 << 20)
#define MAPPED_FROM ((uint64_t)1 << 20) // bytes; below, memory comes from the host

// Stands in front of every allocation.
typedef struct cpu_block {
    _Alignas(64) void *mapping; // NULL: from the host
    uint64_t mapped_bytes;
} cpu_block;

// Why a mapping of its own: the host's memory is zeroed by writing to it, a KV cache of all that is
// free would be written twice. Why huge pages: what is read front to back is read faster than small
// pages can be looked up (1.7 times as fast, measured on a virtual machine). Why not for the first:
// of the many caches of a model often only the beginning is used. Of weights, which are used whole,
// the host says so.
static cpu_block *map_block(uint64_t bytes) {
    const uint64_t mapped_bytes = bytes + HUGE_PAGE;
    void *mapping =
        mmap(NULL, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) {
        return NULL;
    }
    char *start = (char *)mapping + (HUGE_PAGE - (uintptr_t)mapping % HUGE_PAGE) % HUGE_PAGE;
    if (bytes >= 2 * HUGE_PAGE) {
        (void)madvise(start + HUGE_PAGE, (bytes / HUGE_PAGE - 1) * HUGE_PAGE, MADV_HUGEPAGE);
    }
    cpu_block *block = (cpu_block *)(void *)start;
    *block = (cpu_block){.mapping = mapping, .mapped_bytes = mapped_bytes};
    return block;
}

static berth_status allocate(void *self, uint64_t device, uint64_t bytes, void **out_base) {
    (void)device;
    const berth_host *host = ((const berth_cpu *)self)->host;
    const uint64_t wanted = bytes + sizeof(cpu_block);
    cpu_block *block = wanted < bytes || wanted > INT64_MAX ? NULL
                       : wanted < MAPPED_FROM               ? host->alloc(host, wanted, 64)
                                                            : map_block(wanted);
    if (!block) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "asked for %llu bytes, %llu are free",
                                 (unsigned long long)bytes, (unsigned long long)available_bytes());
    }
    *out_base = block + 1;
    return BERTH_OK;
}

static void release(void *self, uint64_t device, void *base) {
    (void)device;
    const berth_host *host = ((const berth_cpu *)self)->host;
    cpu_block *block = base ? (cpu_block *)base - 1 : NULL;
    if (block && block->mapping) {
        (void)munmap(block->mapping, block->mapped_bytes);
    } else {
        host->free(host, block);
    }
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

static void run(const berth_cpu *cpu, berth_work_fn function, const void *work) {
    cpu_pool_run(((const cpu_platform *)(const void *)cpu)->pool, function, work);
}

static berth_status open_device(void *self, uint64_t device) {
    (void)device;
    cpu_platform *cpu = self;
    return cpu_pool_create(cpu->cpu.host, cpu->cpu.threads, &cpu->pool);
}

static void close_device(void *self, uint64_t device) {
    (void)device;
    cpu_platform *cpu = self;
    cpu_pool_destroy(cpu->pool);
    cpu->pool = NULL;
}

static const berth_device_api device_api = {
    .size = sizeof(berth_device_api),
    .open = open_device,
    .close = close_device,
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

static int64_t online_cores(void) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    return cores > 0 ? cores : 1;
}

static berth_status device_info(void *self, uint64_t device, berth_device_info *out) {
    (void)device;
    out->name = ((const cpu_platform *)self)->name;
    out->uuid = "";
    out->memory_bytes = total_bytes();
    out->compute_units = (uint64_t)online_cores();
    return BERTH_OK;
}

static berth_status register_ops(void *self, const berth_config *config,
                                 berth_registrar *registrar) {
    cpu_platform *platform = self;
    berth_cpu *cpu = &platform->cpu;
    berth_status status = cpu->host->config_get_i64(config, "threads", &cpu->threads);
    // Hosts of ABI 1.0 say 0 where the user left it open.
    cpu->threads = cpu->threads > 0 ? cpu->threads : online_cores();
    for (const berth_op_impl *const *kernel = platform->kernels; status == BERTH_OK && *kernel;
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

// The kernels of the instruction set that the user names, or of the best one.
static berth_status choose_kernels(const berth_host *host, const berth_op_impl *const **out) {
    const struct {
        const char *name;
        const berth_op_impl *const *kernels; // NULL: not for this machine, or not built
    } sets[] = {
        {"avx512",   BERTH_MACHINE_HAS_AVX512 ? berth_cpu_avx512_kernels : NULL},
        {"avx2",     BERTH_MACHINE_HAS_AVX2 ? berth_cpu_avx2_kernels : NULL    },
        {"portable", berth_cpu_portable_kernels                                },
    };
    const char *wanted = getenv("BERTH_CPU_ISA");
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; ++i) {
        const int is_wanted = wanted && strcmp(sets[i].name, wanted) == 0;
        if (sets[i].kernels && (!wanted || is_wanted)) {
            *out = sets[i].kernels;
            return BERTH_OK;
        }
        if (is_wanted) {
            return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED,
                                     "BERTH_CPU_ISA asks for %s, which this machine or build lacks",
                                     wanted);
        }
    }
    if (!wanted) {
        return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED,
                                 "built for instruction sets that this machine lacks");
    }
    return BERTH_PLUGIN_FAIL(host, BERTH_DECLINED,
                             "BERTH_CPU_ISA is '%s'; it must be avx512, avx2 or portable", wanted);
}

static berth_status register_cpu(const berth_host *host, berth_registrar *registrar) {
    const berth_op_impl *const *kernels = NULL;
    berth_status status = choose_kernels(host, &kernels);
    if (status != BERTH_OK) {
        return status;
    }
    cpu_platform *self = host->alloc(host, sizeof *self, 0);
    if (!self) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for the platform");
    }
    self->cpu.host = host;
    self->cpu.threads = 1;
    self->cpu.run = run;
    self->kernels = kernels;
    read_name(self->name, sizeof self->name);
    status = registrar->add_platform(registrar, &platform, self);
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
