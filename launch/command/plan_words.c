#include <string.h>

#include "launch/command/plan_report.h"
#include "runtime/base/checked.h"

const char *kvg_plan_class_name(const KvClassPlan *class_plan, char text[40])
{
    if (class_plan->window != 0) {
        snprintf(text, 40, "window %llu", (unsigned long long)class_plan->window);
    } else {
        snprintf(text, 40, "%s", class_plan->kind == KVG_STATE_LATENT ? "latent" : "full");
    }
    return text;
}

int kvg_plan_common_formats(const KvGridPlan *plan, KvFormat *format_k, KvFormat *format_v)
{
    int found = 0;

    for (uint32_t il = 0; il < plan->n_layer + plan->n_mtp; il++) {
        if (plan->format_k[il] == KVG_POLICY) {
            continue;
        }
        if (found && (plan->format_k[il] != *format_k || plan->format_v[il] != *format_v)) {
            return 0;
        }
        found = 1;
        *format_k = plan->format_k[il];
        *format_v = plan->format_v[il];
    }
    return found ? 1 : -1;
}

double kvg_plan_concurrency(const KvGridPlan *plan)
{
    uint64_t rows = kvg_min_u64(plan->ctx, plan->max_ctx);

    return (double)plan->cache_tokens / (double)rows;
}

void kvg_plan_capacity_text(const KvGridPlan *plan, char *text, size_t text_bytes)
{
    char   tokens[32], rows[32];
    size_t used;

    if (!plan->memory_known) {
        snprintf(text, text_bytes, "KV cache: of unknown size; --device-memory says what fits");
        return;
    }
    kvg_plan_digits(plan->cache_tokens, tokens);
    kvg_plan_digits(kvg_min_u64(plan->ctx, plan->max_ctx), rows);
    snprintf(text, text_bytes, "KV cache: %s tokens; %.2fx concurrency at %s tokens", tokens, kvg_plan_concurrency(plan), rows);
    used = strlen(text);
    if (plan->limiting_rank >= 0) {
        snprintf(text + used, text_bytes - used, "; limited by rank %d (stage %u)", plan->limiting_rank,
                 plan->ranks[plan->limiting_rank].stage);
    }
}

uint64_t kvg_plan_class_bytes(const KvGridPlan *plan, const KvRankPlan *rank, uint32_t c)
{
    return rank->class_unit_bytes[c] * plan->classes[c].units;
}

uint64_t kvg_plan_slots_bytes(const KvGridPlan *plan, const KvRankPlan *rank)
{
    return rank->slot_bytes * plan->slots;
}

const char *kvg_plan_digits(uint64_t number, char text[32])
{
    char   plain[24];
    size_t count = (size_t)snprintf(plain, sizeof plain, "%llu", (unsigned long long)number), used = 0;

    for (size_t i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0) {
            text[used++] = ',';
        }
        text[used++] = plain[i];
    }
    text[used] = '\0';
    return text;
}

const char *kvg_plan_size(uint64_t bytes, char text[32])
{
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB", "PB", "EB" };
    double                   size = (double)bytes;
    int                      unit = 0;

    while (size >= 999.5 && unit < 6) {
        size /= 1000;
        unit++;
    }
    snprintf(text, 32, "%.*f %s", unit == 0 || size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2, size, units[unit]);
    return text;
}
