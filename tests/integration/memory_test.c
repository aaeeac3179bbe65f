// SPDX-License-Identifier: Apache-2.0
// Memory from the outside: what a run holds at most, beside its checkpoint and KV cache, and what
// the host itself takes. Both figures are printed.
#include "support/test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "support/program.h"
#include "support/sandbox.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static void need_release(void) {
    if (strcmp(TEST_MODE, "release") != 0) {
        SKIP("sanitizers have memory of their own");
    }
}

// ---- a run --------------------------------------------------------------------------------------

#define PROMPT_TOKENS       16
#define OUTPUT_TOKENS       64
#define EXPERTS_TOKEN_BYTES ((size_t)2 * 1024 * 2) // of olmoe-narrow, olmoe-grouped

static size_t file_size(const char *path) {
    struct stat file;
    CHECK_INT(stat(path, &file), 0);
    return (size_t)file.st_size;
}

// The peak of a run of a model, whose KV cache takes `token_bytes` for a token, against its
// checkpoint and so many hundredths more.
static void check_peak_of(const char *model, size_t hundredths, size_t token_bytes,
                          const char *threads) {
    program p;
    char path[512];
    (void)snprintf(path, sizeof path, "%s/model.safetensors", model);
    const size_t weights = file_size(path);
    const size_t cache = (PROMPT_TOKENS + OUTPUT_TOKENS) * token_bytes;
    const size_t bound = weights + weights / 100 * hundredths + cache + 32 * MIB;
    PROGRAM_MUST(&p, NULL, BERTH, "run", "--model", model, "--platform", "cpu", "--prompt",
                 "abcdefghijklmnop", "-n", "64", "--threads", threads);
    print_message("%s threads: %.1f MiB for a checkpoint of %.1f, at most %.1f\n", threads,
                  (double)p.peak / MIB, (double)weights / MIB, (double)bound / MIB);
    CHECK(p.peak > weights);
    CHECK(p.peak <= bound);
}

static void check_peak(const sandbox *box, size_t token_bytes, const char *threads) {
    check_peak_of(box->dir, 10, token_bytes, threads);
}

TEST(a_run_holds_little_more_than_its_checkpoint) {
    program p;
    sandbox box;
    need_release();
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", box.dir, "--hidden", "1024",
                 "--intermediate", "2816", "--heads", "16", "--kv-heads", "4", "--layers", "6",
                 "--vocab", "16000");
    const size_t token_bytes = (size_t)6 * 2 * 256 * 2;
    check_peak(&box, token_bytes, "1");
    check_peak(&box, token_bytes, "2");
    sandbox_remove(&box);
}

// The experts of a layer are two weights, one of them of more than half of the checkpoint: they are
// packed as they arrive.
TEST(a_run_holds_experts_once) {
    program p;
    sandbox box;
    need_release();
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", box.dir, "--shape", "olmoe-narrow",
                 "--layers", "1", "--vocab", "1024");
    check_peak(&box, EXPERTS_TOKEN_BYTES, "1");
    check_peak(&box, EXPERTS_TOKEN_BYTES, "2");
    sandbox_remove(&box);
}

static void check_codes(const sandbox *box, const char *scheme, const char *group) {
    program p;
    PROGRAM_MUST(&p, PROGRAM_ENV("BERTH_PLUGINS="), TEST_BUILD "/quantize",
                 sandbox_path(box, "floats"), sandbox_path(box, scheme), "--scheme", scheme,
                 "--group", group);
    check_peak_of(sandbox_path(box, scheme), 15, EXPERTS_TOKEN_BYTES, "2");
}

TEST(a_run_holds_experts_in_codes_once) {
    program p;
    sandbox box;
    need_release();
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", sandbox_path(&box, "floats"),
                 "--shape", "olmoe-grouped", "--layers", "1", "--vocab", "1024");
    check_codes(&box, "int8", "128");
    check_codes(&box, "fp8", "128");
    check_codes(&box, "int4", "32");
    sandbox_remove(&box);
}

// Where one weight is a quarter of all, it is held twice while it is put together from its parts.
TEST(loading_holds_little_more_than_the_weights) {
    program p;
    sandbox box;
    need_release();
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", box.dir, "--layers", "2", "--vocab",
                 "4096");
    const size_t weights = file_size(sandbox_path(&box, "model.safetensors"));
    const size_t largest = (size_t)2 * 5632 * 2048 * 2; // gate and up of a layer
    PROGRAM_MUST(&p, PROGRAM_ENV("BERTH_PLUGINS="), BERTH, "run", "--model", box.dir,
                 "--allow-fallback", "--dtype", "bfloat16", "--prompt", "a", "-n", "1",
                 "--max-model-len", "64", "--kv-cache-blocks", "8");
    CHECK(p.peak > weights);
    CHECK(p.peak < weights + largest + 32 * MIB);
    sandbox_remove(&box);
}

// ---- a device -----------------------------------------------------------------------------------

// What a run through a platform's device table says that it holds there.
static void check_device(const sandbox *box, const char *platform, size_t cache) {
    program p;
    unsigned long long held = 0;
    unsigned long long peak = 0;
    unsigned long long weights = 0;
    unsigned long long caches = 0;
    unsigned long long activations = 0;
    const size_t file = file_size(sandbox_path(box, "model.safetensors"));
    PROGRAM_MUST(&p, PROGRAM_ENV("BERTH_LOG=info"), BERTH, "run", "--model", box->dir, "--platform",
                 platform, "--allow-fallback", "--prompt", "abcdefghijklmnop", "-n", "2",
                 "--max-model-len", "128", "--kv-cache-blocks", "16");
    const char *line = strstr(p.err, "bytes of device memory");
    CHECK(line != NULL);
    while (line > p.err && line[-1] != ':') {
        --line;
    }
    CHECK_INT(sscanf(line,
                     "%llu bytes of device memory, %llu at most: weights %llu, caches %llu, "
                     "activations %llu",
                     &held, &peak, &weights, &caches, &activations),
              5);
    print_message(
        "%s: %llu bytes held, %llu at most: weights %llu, caches %llu, activations %llu\n",
        platform, held, peak, weights, caches, activations);
    CHECK(weights > file / 100 * 98 && weights < file / 100 * 102);
    CHECK(caches <= cache);
    CHECK(held > 0 && held <= peak);
    CHECK(peak <= weights + weights / 50 + caches + activations + 64 * MIB);
}

TEST(a_device_holds_weights_caches_and_activations) {
    program p;
    sandbox box;
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", box.dir, "--hidden", "1024",
                 "--intermediate", "2816", "--heads", "16", "--kv-heads", "4", "--layers", "2",
                 "--vocab", "16000");
    const size_t cache = (size_t)16 * 16 * 2 * 2 * 256 * 2; // 16 blocks of 16 tokens, two layers
    check_device(&box, "dummy", cache);
    if (berth_path_exists(TEST_BUILD "/plugins/cpu.plugin.yaml")) {
        check_device(&box, "cpu", cache);
    }
    sandbox_remove(&box);
}

// ---- the host -----------------------------------------------------------------------------------

extern char **environ;

// A program that waits where it writes to a full pipe or reads from an empty one.
typedef struct waiting {
    pid_t pid;
    int ends[2];
} waiting;

// Why: pages of a file that was just linked count as dirty until they are on the disk.
static void settle(const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    CHECK_INT(fsync(file), 0);
    CHECK_INT(close(file), 0);
}

static void start(waiting *w, int to, const char *const *arguments) {
    static const char filler[4096];
    posix_spawn_file_actions_t actions;
    const char *const environment[] = {"BERTH_PLUGIN_DIRS=/nonexistent", NULL};
    settle(arguments[0]);
    CHECK_INT(pipe2(w->ends, O_CLOEXEC), 0);
    if (to == 1) {
        CHECK_INT(fcntl(w->ends[1], F_SETPIPE_SZ, sizeof filler), sizeof filler);
        CHECK_INT(write(w->ends[1], filler, sizeof filler), sizeof filler);
    }
    CHECK_INT(posix_spawn_file_actions_init(&actions), 0);
    CHECK_INT(posix_spawn_file_actions_adddup2(&actions, w->ends[to], to), 0);
    CHECK_INT(posix_spawnp(&w->pid, arguments[0], &actions, NULL, (char *const *)arguments,
                           (char *const *)environment),
              0);
    CHECK_INT(posix_spawn_file_actions_destroy(&actions), 0);
}

static bool is_waiting(pid_t pid) {
    char path[64];
    char text[512] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    CHECK(fgets(text, sizeof text, file) != NULL);
    (void)fclose(file);
    return strstr(text, ") S ") != NULL;
}

static size_t private_dirty(pid_t pid) {
    char path[64];
    char line[256];
    size_t kibibytes = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    while (kibibytes == 0 && fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "Private_Dirty: %zu kB", &kibibytes);
    }
    (void)fclose(file);
    CHECK(kibibytes > 0);
    return kibibytes * KIB;
}

// Asleep a few times in a row: not on its way, but where it stays.
static size_t measure(waiting *w) {
    for (size_t asleep = 0, i = 0; asleep < 5 && i < 500; ++i) {
        (void)poll(NULL, 0, 20);
        asleep = is_waiting(w->pid) ? asleep + 1 : 0;
    }
    const size_t bytes = private_dirty(w->pid);
    CHECK_INT(kill(w->pid, SIGKILL), 0);
    CHECK_INT(waitpid(w->pid, NULL, 0), w->pid);
    CHECK_INT(close(w->ends[0]), 0);
    CHECK_INT(close(w->ends[1]), 0);
    return bytes;
}

// `ops list` goes as far as the frozen tables; there its output finds the pipe full.
TEST(the_host_takes_less_than_a_mebibyte) {
    program p;
    sandbox box;
    waiting empty;
    waiting host;
    char line[1024];
    need_release();
    sandbox_make(&box);
    const char *source = sandbox_write(&box, "empty.c",
                                       "#include <unistd.h>\n"
                                       "int main(void) { char c; return read(0, &c, 1) < 0; }\n");
    const char *binary = sandbox_path(&box, "empty");
    (void)snprintf(line, sizeof line, "cc -O2 -pthread %s -Wl,--no-as-needed " TEST_LIBS " -o %s",
                   source, binary);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "sh", "-c", line);
    start(&empty, 0, (const char *const[]){binary, NULL});
    const size_t of_empty = measure(&empty);
    start(&host, 1, (const char *const[]){BERTH, "ops", "list", NULL});
    const size_t of_host = measure(&host);
    print_message("private dirty: %zu KiB, of an empty main with the same libraries %zu KiB\n",
                  of_host / KIB, of_empty / KIB);
    CHECK(of_host > of_empty);
    CHECK(of_host - of_empty <= MIB);
    sandbox_remove(&box);
}
