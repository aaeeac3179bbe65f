// SPDX-License-Identifier: Apache-2.0
// The user's wish that the program ends: SIGINT and SIGTERM. The first one is only noted, for long
// work to ask after between its pieces; the next one kills, whatever the program is doing.
#ifndef BERTH_BASE_INTERRUPT_H
#define BERTH_BASE_INTERRUPT_H

// From now on a first signal is noted. Without it both kill, as everywhere.
void berth_interrupt_watch(void);
// The signal that came, 0: none. [any]
int berth_interrupt_signal(void);

#endif
