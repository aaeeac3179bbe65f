// SPDX-License-Identifier: Apache-2.0
// The blocks of a sequence in all groups of layers: those that see every token keep every block,
// those with a window or with chunks give back what is behind.
#include "engine/engine_private.h"

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

int64_t berth_group_skips(const berth_token_group *group, int64_t position) {
    const int64_t tokens = group->window > 0  ? larger(position - group->window + 1, 0)
                           : group->chunk > 0 ? position / group->chunk * group->chunk
                                              : 0;
    return tokens / group->pool.block_size;
}

int64_t berth_group_needs(const berth_token_group *group, int64_t tokens) {
    const int64_t blocks = berth_pool_blocks(&group->pool, tokens);
    return blocks < group->most ? blocks : group->most;
}

bool berth_groups_cover(berth_token_groups *groups, berth_sequence *sequence, int64_t tokens) {
    for (size_t i = 0; i < groups->count; ++i) {
        berth_token_group *group = &groups->all[i];
        berth_block_list *list = &sequence->blocks[i];
        berth_pool_drop(&group->pool, list, berth_group_skips(group, sequence->computed));
        if (berth_pool_blocks(&group->pool, tokens) - list->count > group->pool.free_count) {
            return false;
        }
    }
    bool is_covered = true;
    for (size_t i = 0; i < groups->count; ++i) {
        is_covered =
            berth_pool_cover(&groups->all[i].pool, &sequence->blocks[i], tokens) && is_covered;
    }
    return is_covered;
}

void berth_groups_promise(berth_token_groups *groups, const berth_sequence *sequence) {
    for (size_t i = 0; i < groups->count; ++i) {
        berth_token_group *group = &groups->all[i];
        const berth_block_list *list = &sequence->blocks[i];
        const int64_t held = list->count - list->dropped;
        group->promised += larger(berth_group_needs(group, sequence->token_count) - held, 0);
    }
}

void berth_groups_return(berth_token_groups *groups, berth_sequence *sequence) {
    for (size_t i = 0; i < groups->count; ++i) {
        berth_pool_return(&groups->all[i].pool, &sequence->blocks[i]);
    }
    sequence->stored = 0;
    sequence->link = 0;
}
