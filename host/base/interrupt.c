// SPDX-License-Identifier: Apache-2.0
// Input: SIGINT or SIGTERM. Output: a number that is asked for. Nothing else happens in a handler.
#include "base/interrupt.h"

#include <signal.h>
#include <stddef.h>

// Why a writable global: a handler has nothing else.
static volatile sig_atomic_t received;

static void note(int signal_number) {
    received = signal_number;
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}

// Why SA_RESTART: no code of ours or of a plugin's meets an EINTR that it does not know. Why also
// where SIGINT was ignored, as it is behind a shell's `&`: who sends one means it.
void berth_interrupt_watch(void) {
    struct sigaction action = {.sa_handler = note, .sa_flags = SA_RESTART};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

int berth_interrupt_signal(void) {
    return (int)received;
}
