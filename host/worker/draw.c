// SPDX-License-Identifier: Apache-2.0
// A row of logits and a random number give one token: the distribution is inverted in descending
// order of probability, ties by id.
//
// Nothing is sorted: top_k, top_p and the random number each ask for a place in the order, and
// selection finds that in time proportional to the vocabulary. A heap would have to give up, one by
// one, half the vocabulary of a flat distribution. Where the whole vocabulary takes part, its
// weights are first added up in buckets of logits that are about alike, so that only the few of one
// bucket have to be put in order.
#include <math.h>
#include <string.h>

#include "worker/sampler.h"

#define BLOCK 256 // logits that are weighed at a time

// What is less than e^-DEPTH times as likely as the likeliest is left out: a vocabulary of it
// weighs too little for the random number, which has 32 bits, to point there.
#define DEPTH 40.0

// ---- places in the order ------------------------------------------------------------------------

uint64_t berth_candidate_key(float logit, size_t id) {
    const float value = isnan(logit) ? -INFINITY : logit + 0.0F; // -0 is 0
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t ascending = bits >> 31 ? ~bits : bits | UINT32_C(0x80000000);
    return (uint64_t)~ascending << 32 | (uint32_t)id;
}

static size_t id_of(const berth_candidate_token *candidate) {
    return (uint32_t)candidate->key;
}

static void swap(berth_candidate_token *a, berth_candidate_token *b) {
    const berth_candidate_token kept = *a;
    *a = *b;
    *b = kept;
}

static void sort_two(berth_candidate_token *a, berth_candidate_token *b) {
    if (b->key < a->key) {
        swap(a, b);
    }
}

// Divides [begin, end), which is not empty, at one of its candidates and returns that one's place:
// all before it are likelier, all after it less likely.
static size_t divide(berth_candidate_token *all, size_t begin, size_t end) {
    berth_candidate_token *last = &all[end - 1];
    berth_candidate_token *middle = &all[begin + (end - begin) / 2];
    sort_two(&all[begin], middle);
    sort_two(middle, last);
    sort_two(&all[begin], middle);
    swap(middle, last); // the median divides
    const uint64_t key = last->key;
    size_t place = begin;
    // Why no branch: it would go either way half of the time, which costs more than the copies.
    for (size_t i = begin; i + 1 < end; ++i) {
        const berth_candidate_token candidate = all[i];
        all[i] = all[place];
        all[place] = candidate;
        place += candidate.key < key;
    }
    swap(&all[place], last);
    return place;
}

// Brings the `wanted` likeliest of `count` to the front, the least likely of them last.
static void bring_first(berth_candidate_token *all, size_t count, size_t wanted) {
    size_t begin = 0;
    size_t end = count;
    while (begin < end) {
        const size_t place = divide(all, begin, end);
        if (place + 1 == wanted) {
            return;
        }
        if (place < wanted) {
            begin = place + 1;
        } else {
            end = place;
        }
    }
}

// Brings to the front the fewest of the likeliest whose weights add up to more than `target`, the
// least likely of them last, and returns how many they are and what they weigh.
static size_t bring_weight(berth_candidate_token *all, size_t count, double target,
                           double *out_weight) {
    size_t begin = 0;
    size_t end = count;
    double before = 0; // weight of [0, begin)
    while (begin < end) {
        const size_t place = divide(all, begin, end);
        double weight = before;
        for (size_t i = begin; i < place; ++i) {
            weight += all[i].weight;
        }
        if (weight > target) {
            end = place;
            continue;
        }
        before = weight + all[place].weight;
        begin = place + 1;
        if (before > target) {
            break;
        }
    }
    *out_weight = before;
    return begin;
}

// ---- the choice ---------------------------------------------------------------------------------

// ---- weights ------------------------------------------------------------------------------------

// A row that tokens are drawn from.
typedef struct draw {
    berth_sampler *sampler;
    const berth_sampling *sampling;
    const float *logits;
    double maximum; // of the logits
    double lowest;  // that min_p lets through, below the maximum
} draw;

// Where the random number u points to. u is at most 1 - 2^-32, far more below 1 than sums
// of a vocabulary are off by rounding, so the share is reached before its end.
static double point_of(const draw *self, double sum) {
    return (double)berth_philox(self->sampling->seed, self->sampling->index) * 0x1p-32 * sum;
}

static bool has_nucleus(const draw *self) {
    return self->sampling->top_p > 0 && self->sampling->top_p < 1;
}

// The fewest of the likeliest that weigh more make up top_p of the sum. Why nextafter: a share that
// is reached exactly is enough.
static double nucleus_of(const draw *self, double sum) {
    return nextafter(self->sampling->top_p * sum, 0);
}

static inline bool is_too_low(const draw *self, float logit) {
    return (double)logit - self->maximum < self->lowest;
}

static bool are_all_too_low(const draw *self, const float *logits, size_t count) {
    return is_too_low(self, berth_largest_logit(logits, count));
}

// Weighs the first candidates, whose keys are there.
static double weigh(const draw *self, size_t count) {
    berth_candidate_token *all = self->sampler->candidates;
    float logits[BLOCK];
    double weights[BLOCK];
    double sum = 0;
    for (size_t first = 0; first < count; first += BLOCK) {
        const size_t some = count - first < BLOCK ? count - first : BLOCK;
        for (size_t i = 0; i < some; ++i) {
            logits[i] = self->logits[id_of(&all[first + i])];
        }
        berth_weigh(logits, some, self->maximum, self->sampling->temperature, weights);
        for (size_t i = 0; i < some; ++i) {
            all[first + i].weight = weights[i];
            sum += weights[i];
        }
    }
    return sum;
}

// ---- of the likeliest k -------------------------------------------------------------------------

// Those that min_p and top_k let through; returns how many. What has no probability at all is left
// out.
static size_t admit(const draw *self) {
    berth_candidate_token *all = self->sampler->candidates;
    const size_t vocab_size = self->sampler->vocab_size;
    const size_t wanted = self->sampling->top_k;
    const size_t room = wanted < vocab_size / 2 ? 2 * wanted : vocab_size;
    float bound = -INFINITY;
    size_t count = 0;
    for (size_t i = 0; i < vocab_size; ++i) {
        if (!(self->logits[i] > bound) || is_too_low(self, self->logits[i])) {
            continue;
        }
        all[count++].key = berth_candidate_key(self->logits[i], i);
        // Once as many as are wanted are there, only what is likelier than the last one of them
        // comes in: of equal ones the first counts.
        if (count == room && wanted < count) {
            bring_first(all, count, wanted);
            count = wanted;
            bound = self->logits[id_of(&all[wanted - 1])];
        }
    }
    if (wanted < count) {
        bring_first(all, count, wanted);
    }
    return wanted < count ? wanted : count;
}

static size_t choose_among_few(const draw *self) {
    berth_candidate_token *all = self->sampler->candidates;
    size_t count = admit(self);
    double sum = weigh(self, count);
    if (has_nucleus(self)) {
        count = bring_weight(all, count, nucleus_of(self, sum), &sum);
    }
    count = bring_weight(all, count, point_of(self, sum), &sum);
    return id_of(&all[count - 1]);
}

// ---- of all -------------------------------------------------------------------------------------

// The bucket of a logit; those before it have likelier ones.
static inline size_t bucket_of(double maximum, double scale, float logit) {
    const double place = (maximum - (double)logit) * scale;
    return place < BERTH_BUCKETS - 1 ? (size_t)place : BERTH_BUCKETS - 1;
}

static double scale_of(const draw *self) {
    return BERTH_BUCKETS / (DEPTH * self->sampling->temperature);
}

// Adds all weights up that min_p lets through, by buckets.
static double fill_buckets(const draw *self) {
    double *buckets = self->sampler->buckets;
    const double scale = scale_of(self);
    double weights[BLOCK];
    double sum = 0;
    memset(buckets, 0, BERTH_BUCKETS * sizeof *buckets);
    for (size_t first = 0; first < self->sampler->vocab_size; first += BLOCK) {
        const size_t left = self->sampler->vocab_size - first;
        const size_t some = left < BLOCK ? left : BLOCK;
        const float *logits = self->logits + first;
        if (are_all_too_low(self, logits, some)) {
            continue;
        }
        berth_weigh(logits, some, self->maximum, self->sampling->temperature, weights);
        for (size_t i = 0; i < some; ++i) {
            const double weight = is_too_low(self, logits[i]) ? 0 : weights[i];
            buckets[bucket_of(self->maximum, scale, logits[i])] += weight;
        }
    }
    for (size_t i = 0; i < BERTH_BUCKETS; ++i) {
        sum += buckets[i];
    }
    return sum;
}

// A bucket and the weight of all before it.
typedef struct place {
    size_t bucket;
    double before;
} place;

// Where the weights add up to more than the target: a bucket that is not empty.
static place find_bucket(const draw *self, double target) {
    const double *buckets = self->sampler->buckets;
    place found = {0};
    double sum = 0;
    for (size_t i = 0; i < BERTH_BUCKETS && sum <= target; ++i) {
        if (buckets[i] > 0) {
            found = (place){.bucket = i, .before = sum};
        }
        sum += buckets[i];
    }
    return found;
}

// The candidates of a bucket.
static size_t empty_bucket(const draw *self, size_t bucket) {
    berth_candidate_token *all = self->sampler->candidates;
    const double scale = scale_of(self);
    size_t count = 0;
    size_t kept = 0;
    for (size_t i = 0; i < self->sampler->vocab_size; ++i) {
        const float logit = self->logits[i];
        if (bucket_of(self->maximum, scale, logit) == bucket && !is_too_low(self, logit)) {
            all[count++].key = berth_candidate_key(logit, i);
        }
    }
    (void)weigh(self, count);
    for (size_t i = 0; i < count; ++i) {
        all[kept] = all[i];
        kept += all[i].weight > 0;
    }
    return kept;
}

static size_t choose_among_all(const draw *self) {
    berth_candidate_token *all = self->sampler->candidates;
    double sum = fill_buckets(self);
    place last = {.bucket = BERTH_BUCKETS};
    size_t count = 0;
    double weight = 0;
    if (has_nucleus(self)) {
        const double target = nucleus_of(self, sum);
        last = find_bucket(self, target);
        count = empty_bucket(self, last.bucket);
        count = bring_weight(all, count, target - last.before, &weight);
        sum = last.before + weight;
    }
    const double point = point_of(self, sum);
    const place found = find_bucket(self, point);
    if (found.bucket != last.bucket) {
        count = empty_bucket(self, found.bucket);
    }
    count = bring_weight(all, count, point - found.before, &weight);
    return id_of(&all[count - 1]);
}

size_t berth_draw(berth_sampler *sampler, const float *logits, float maximum,
                  const berth_sampling *sampling) {
    const draw self = {
        .sampler = sampler,
        .sampling = sampling,
        .logits = logits,
        .maximum = (double)maximum,
        .lowest = log(fmax(sampling->min_p, exp(-DEPTH))) * sampling->temperature,
    };
    const bool are_few = sampling->top_k > 0 && sampling->top_k < sampler->vocab_size;
    return are_few ? choose_among_few(&self) : choose_among_all(&self);
}
