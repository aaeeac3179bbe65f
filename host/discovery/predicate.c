// SPDX-License-Identifier: Apache-2.0
// Input: what a manifest demands of the machine. Output: nothing, or why this machine is not it.
// Decided without opening the library, so that a build for other processors is passed over instead
// of killing the process.
#include "discovery/search.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#define CPUINFO_BYTES 16384 // holds the first processor; the others repeat it

// The first line "flags : …" (x86) or "Features : …" (Arm), with a blank at both ends.
static const char *flags_in(const char *cpuinfo, berth_arena *arena) {
    berth_str rest = berth_str_from(cpuinfo);
    for (berth_str line; berth_str_split_first(&rest, '\n', &line);) {
        const size_t colon = berth_str_find(line, ':');
        const berth_str name = berth_str_trim(berth_str_slice(line, 0, colon));
        if (colon < line.size &&
            (berth_str_equal_cstr(name, "flags") || berth_str_equal_cstr(name, "Features"))) {
            const berth_str flags = berth_str_trim(berth_str_slice(line, colon + 1, line.size));
            return berth_arena_printf(arena, " " BERTH_STR_FMT " ", BERTH_STR_ARG(flags));
        }
    }
    return " ";
}

// Why not the whole file: on a machine with 256 cores it is half a megabyte that the kernel prints
// anew for every reader.
static berth_status read_flags(berth_arena *arena, const char **out_flags) {
    char *cpuinfo = berth_arena_alloc(arena, CPUINFO_BYTES, 1);
    const int fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    size_t size = 0;
    while (cpuinfo != NULL && fd >= 0 && size < CPUINFO_BYTES - 1) {
        const ssize_t got = read(fd, cpuinfo + size, CPUINFO_BYTES - 1 - size);
        if (got > 0) {
            size += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            break;
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    *out_flags = cpuinfo == NULL ? NULL : flags_in(cpuinfo, arena);
    return *out_flags == NULL ? berth_arena_exhausted(arena, "processor flags") : BERTH_OK;
}

static berth_status ask_machine(const berth_demands *demands, berth_machine *machine,
                                berth_arena *arena) {
    if (demands->arch != NULL && machine->arch == NULL) {
        struct utsname name;
        machine->arch = berth_arena_strdup(arena, uname(&name) == 0 ? name.machine : "unknown");
        if (machine->arch == NULL) {
            return berth_arena_exhausted(arena, "the machine's architecture");
        }
    }
    if (demands->cpu_count > 0 && machine->flags == NULL) {
        return read_flags(arena, &machine->flags);
    }
    return BERTH_OK;
}

static bool has_flag(const char *flags, const char *flag) {
    const size_t size = strlen(flag);
    for (const char *at = strstr(flags, flag); at != NULL; at = strstr(at + 1, flag)) {
        if (at[-1] == ' ' && at[size] == ' ') {
            return true;
        }
    }
    return false;
}

berth_status berth_demands_judge(const berth_demands *demands, berth_machine *machine,
                                 berth_arena *arena, const char **out_reason) {
    *out_reason = NULL;
    BERTH_TRY(ask_machine(demands, machine, arena));
    if (demands->arch != NULL && strcmp(demands->arch, machine->arch) != 0) {
        *out_reason = berth_arena_printf(arena, "built for %s, this machine is %s", demands->arch,
                                         machine->arch);
        return *out_reason == NULL ? berth_arena_exhausted(arena, "a reason") : BERTH_OK;
    }
    for (size_t i = 0; i < demands->cpu_count; ++i) {
        if (!has_flag(machine->flags, demands->cpu[i])) {
            *out_reason = berth_arena_printf(
                arena, "needs the processor feature '%s', which is absent here", demands->cpu[i]);
            return *out_reason == NULL ? berth_arena_exhausted(arena, "a reason") : BERTH_OK;
        }
    }
    return BERTH_OK;
}
