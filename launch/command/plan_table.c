#include <string.h>

#include <kvgrid/head_shard.h>

#include "launch/command/plan_report.h"
#include "runtime/base/checked.h"

/* ---- heading */

static void print_kinds(FILE *stream, const ModelConfig *config)
{
    const char *comma = "";

    for (int kind = 0; kind < KVG_STATE_KIND_COUNT; kind++) {
        uint32_t count = 0;

        for (uint32_t il = 0; il < config->plan.n_layer; il++) {
            count += config->plan.layers[il].kind == (KvStateKind)kind;
        }
        if (count > 0) {
            fprintf(stream, "%s%u %s", comma, count, kvg_state_kind_name((KvStateKind)kind));
            comma = ", ";
        }
    }
}

/* Whose choice the formats are: "the default", "of the knobs", or "" where an option gave one. */
static const char *formats_origin(const PlanReport *report)
{
    const KvgPolicy *ours = &report->sizing.policy;
    KvgPolicy        standard;

    if (report->arguments->format_k != KVG_POLICY || report->arguments->format_v != KVG_POLICY) {
        return "";
    }
    kvg_policy_default(&standard);
    return ours->format_k == standard.format_k && ours->format_v == standard.format_v && ours->gemma_gkv == standard.gemma_gkv &&
                   ours->gemma_wkv == standard.gemma_wkv && ours->kv_fp8 == standard.kv_fp8
               ? "the default"
               : "of the knobs";
}

static void print_pair(FILE *stream, KvFormat format_k, KvFormat format_v, const char *origin)
{
    int lossy = kvg_format_is_lossy(format_k) || kvg_format_is_lossy(format_v);

    fprintf(stream, "K %s, V %s", kvg_format_name(format_k), kvg_format_name(format_v));
    if (lossy || origin[0] != '\0') {
        fprintf(stream, " (%s%s%s)", lossy ? "lossy" : "", lossy && origin[0] != '\0' ? "; " : "", origin);
    }
}

/* The formats of class `c`: of its first K/V layer. */
static void print_class_formats(FILE *stream, const PlanReport *report, uint32_t c)
{
    const KvGridPlan *plan = &report->grid.plan;
    char              name[40];

    for (uint32_t il = 0; il < plan->n_layer; il++) {
        if (plan->class_of_layer[il] == c && plan->format_k[il] != KVG_POLICY) {
            fprintf(stream, "%s: ", kvg_plan_class_name(&plan->classes[c], name));
            print_pair(stream, plan->format_k[il], plan->format_v[il], formats_origin(report));
            fprintf(stream, "  ");
            return;
        }
    }
}

static void print_formats(FILE *stream, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    KvFormat          format_k = KVG_POLICY, format_v = KVG_POLICY;
    int               common = kvg_plan_common_formats(plan, &format_k, &format_v);

    fprintf(stream, "formats     ");
    if (common == 1) {
        print_pair(stream, format_k, format_v, formats_origin(report));
    } else if (common == 0) {
        for (uint32_t c = 0; c < plan->class_count; c++) {
            print_class_formats(stream, report, c);
        }
    } else {
        fprintf(stream, "no K/V rows");
    }
    for (uint32_t il = 0; il < plan->n_layer; il++) {
        if (report->config.plan.layers[il].kind == KVG_STATE_LATENT) {
            fprintf(stream, ", latents %s", report->sizing.format_latent == KVG_BF16 ? "bf16" : "f32");
            break;
        }
    }
    fprintf(stream, "\n");
}

static void print_trunk(FILE *stream, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    char              number[32];

    fprintf(stream, "%s: %u layers (", report->config.name, plan->n_layer);
    print_kinds(stream, &report->config);
    fprintf(stream, ") on %u rank%s: tp %u x pp %u, T = %s tokens%s\n", plan->ranks_count, plan->ranks_count == 1 ? "" : "s", plan->tp,
            plan->pp, kvg_plan_digits(plan->ctx, number),
            report->arguments->ctx == 0 && report->config.context == 0 ? " (assumed: the config names no context; --ctx says it)" : "");
    print_formats(stream, report);
    fprintf(stream, "a token     %s bytes", kvg_plan_digits(report->bytes_per_token, number));
    if (report->ring_bytes_per_token != 0) {
        fprintf(stream, ", of which %s", kvg_plan_digits(report->ring_bytes_per_token, number));
        fprintf(stream, " stop growing at %s rows (ring)", kvg_plan_digits(report->ring_row_cap, number));
    }
    if (report->mtp_bytes_per_token != 0) {
        fprintf(stream, "; MTP blocks %s more%s", kvg_plan_digits(report->mtp_bytes_per_token, number),
                report->arguments->mtp ? "" : " (not placed: --mtp)");
    }
    fprintf(stream, "\na sequence  %s bytes fixed", kvg_plan_digits(report->fixed_bytes, number));
    if (report->column_bytes != 0) {
        fprintf(stream, ": recurrent state in 2 columns of %s; K+1 of them take any prefix of a round of K rows", kvg_plan_digits(report->column_bytes, number));
        if (report->arguments->columns > 2) {
            fprintf(stream, ", here %llu", (unsigned long long)report->arguments->columns);
        }
    }
    fprintf(stream, "\n");
    fprintf(stream, "fence       ");
    for (uint32_t s = 0; s <= plan->pp; s++) {
        fprintf(stream, "%s%u", s == 0 ? "" : " | ", plan->fence[s]);
    }
    fprintf(stream, "\n");
}

/* ---- ranks */

#define HEADS_MOST 48

typedef struct HeadsSeen {
    uint32_t counts[4];
    uint32_t count;
} HeadsSeen;

/* Adds "0-1" for each head count of the stage's layers of one kind that was not seen yet; returns the length of the text. */
static size_t add_heads(const PlanReport *report, const KvRankPlan *rank, KvStateKind kind, HeadsSeen *seen, char *text, size_t used)
{
    for (uint32_t il = rank->lo; il < rank->hi; il++) {
        const StatePlan *layer = &report->config.plan.layers[il];
        HeadShard        shard;
        uint32_t         known = 0;

        if (layer->kind != kind) {
            continue;
        }
        while (known < seen->count && seen->counts[known] != layer->u.kv.kv_heads) {
            known++;
        }
        if (known < seen->count || seen->count == 4 ||
            kvg_head_shard(layer->u.kv.kv_heads, report->grid.plan.tp, rank->tp_rank, &shard) != KVG_OK) {
            continue;
        }
        seen->counts[seen->count++] = layer->u.kv.kv_heads;
        used += (size_t)snprintf(text + used, HEADS_MOST - used, "%s%u", used == 0 ? "" : "/", shard.first);
        if (shard.count > 1) {
            used += (size_t)snprintf(text + used, HEADS_MOST - used, "-%u", shard.first + shard.count - 1);
        }
    }
    return used;
}

/* "0-1", or "0/0-1" where full and windowed layers have different head counts; "whole" for latents, "-" for no rows. */
static void heads_text(const PlanReport *report, const KvRankPlan *rank, char text[HEADS_MOST])
{
    HeadsSeen seen = { .count = 0 };
    size_t    used = add_heads(report, rank, KVG_STATE_KV, &seen, text, 0);

    used = add_heads(report, rank, KVG_STATE_SLIDING_KV, &seen, text, used);
    for (uint32_t il = rank->lo; il < rank->hi; il++) {
        if (report->config.plan.layers[il].kind == KVG_STATE_LATENT) {
            snprintf(text + used, HEADS_MOST - used, "%swhole", used == 0 ? "" : "/");
            return;
        }
    }
    if (used == 0) {
        snprintf(text, HEADS_MOST, "-");
    }
}

static void print_rank(FILE *stream, const PlanReport *report, const KvRankPlan *rank)
{
    const KvGridPlan *plan = &report->grid.plan;
    char              layers[32], heads[HEADS_MOST], token[32], ring[32], fixed[32], duplicate[32], weights[32], state[32];

    snprintf(layers, sizeof layers, "%u-%u", rank->lo, rank->hi - 1);
    heads_text(report, rank, heads);
    fprintf(stream, "%4u %5u %4u  %-9s %-9s %12s %10s %13s %11s %10s %10s%s\n", rank->rank, rank->stage, rank->tp_rank, layers, heads,
            kvg_plan_digits(rank->bytes_per_token, token), kvg_plan_digits(rank->ring_bytes_per_token, ring),
            kvg_plan_digits(rank->fixed_bytes, fixed), kvg_plan_digits(rank->duplicate_bytes_per_token, duplicate),
            kvg_plan_size(rank->weight_bytes, weights), plan->memory_known ? kvg_plan_size(rank->state_bytes, state) : "-",
            plan->limiting_rank == (int32_t)rank->rank ? "  <- limits" : "");
}

static void print_ranks(FILE *stream, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;

    fprintf(stream, "\n%4s %5s %4s  %-9s %-9s %12s %10s %13s %11s %10s %10s\n", "rank", "stage", "tp", "layers", "KV heads", "bytes/token",
            "in a ring", "fixed/seq", "duplicates", "weights", "for state");
    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        print_rank(stream, report, &plan->ranks[r]);
    }
    fprintf(stream, "\n");
}

static void print_duplicates(FILE *stream, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    uint64_t          all = 0, copies = 0;
    char              number[32];

    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        all += plan->ranks[r].bytes_per_token;
        copies += plan->ranks[r].duplicate_bytes_per_token;
    }
    if (copies == 0) {
        fprintf(stream, "duplicates: none\n");
        return;
    }
    fprintf(stream, "duplicates: %s bytes a token over all ranks are copies", kvg_plan_digits(copies, number));
    fprintf(stream, " (%.0f %% of %s; replicated heads and whole latents)\n", 100.0 * (double)copies / (double)all,
            kvg_plan_digits(all, number));
}

/* ---- what fits */

static void print_weights(FILE *stream, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    uint64_t          bytes = 0;
    char              size[32];

    for (uint32_t r = 0; r < plan->ranks_count; r++) {
        bytes += plan->ranks[r].weight_bytes;
    }
    fprintf(stream, "weights: %s%s\n", kvg_plan_size(bytes, size),
            report->arguments->weights_bytes != 0 ? "" : ", an estimate from the config; --weights-bytes says what they really take");
}

static void print_capacity(FILE *stream, const PlanReport *report)
{
    const KvGridPlan *plan = &report->grid.plan;
    char              text[192], number[32], rows[32];

    kvg_plan_capacity_text(plan, text, sizeof text);
    fprintf(stream, "%s\n", text);
    if (!plan->memory_known) {
        return;
    }
    if (plan->max_context == 0) {
        fprintf(stream, "nothing fits: not one unit of %d rows is left beside weights and reserve\n", KVG_CHUNK_ROWS);
        return;
    }
    fprintf(stream, "longest context: %s tokens", kvg_plan_digits(plan->max_context, number));
    if (plan->ctx > plan->max_ctx) {
        fprintf(stream, "; T = %s is past the model's own %s, so no such sequence is admitted\n", kvg_plan_digits(plan->ctx, number),
                kvg_plan_digits(plan->max_ctx, rows));
        return;
    }
    fprintf(stream, "; together: %s sequence%s of %s tokens\n", kvg_plan_digits(plan->max_sequences, number),
            plan->max_sequences == 1 ? "" : "s", kvg_plan_digits(plan->ctx, rows));
}

static void print_trace(FILE *stream, const PlanReport *report)
{
    const TraceFit *fit = &report->trace;
    char            requests[32], tokens[32], content[32], booked[32];

    fprintf(stream, "trace: %s of %s requests", kvg_plan_digits(fit->fit, requests), kvg_plan_digits(fit->requests, tokens));
    fprintf(stream, "%s (%s tokens)", report->grid.plan.memory_known ? " fit together at their real lengths" : "",
            kvg_plan_digits(fit->tokens, tokens));
    if (fit->limiting_rank >= 0) {
        fprintf(stream, "; limited by rank %d (stage %u)", fit->limiting_rank, report->grid.plan.ranks[fit->limiting_rank].stage);
    }
    if (fit->past_context != 0) {
        fprintf(stream, "; %s past the model's context", kvg_plan_digits(fit->past_context, requests));
    }
    fprintf(stream, "\n       content %s, booked %s on rank %d, the fullest", kvg_plan_size(fit->content_bytes, content),
            kvg_plan_size(fit->booked_bytes, booked), fit->fullest_rank);
    if (fit->content_bytes != 0) {
        fprintf(stream, ": booked/content %.3f", (double)fit->booked_bytes / (double)fit->content_bytes);
    }
    fprintf(stream, "\n");
}

static void print_grids(FILE *stream, const PlanReport *report)
{
    char tokens[32], context[32], sequences[32], size[32];

    fprintf(stream, "grids of %llu ranks, best first\n%4s %4s %16s %12s %10s %13s %8s\n",
            (unsigned long long)report->arguments->gpus, "tp", "pp", "cache tokens", "sequences", "context", "fullest rank", "limits");
    for (uint32_t i = 0; i < report->grids_fit; i++) {
        const PlanGrid *grid = &report->grids[i];
        int             known = grid->plan.memory_known;

        fprintf(stream, "%4u %4u %16s %12s %10s %13s ", grid->tp, grid->pp, known ? kvg_plan_digits(grid->plan.cache_tokens, tokens) : "-",
                known ? kvg_plan_digits(grid->plan.max_sequences, sequences) : "-",
                known ? kvg_plan_digits(grid->plan.max_context, context) : "-", kvg_plan_size(grid->rank_bytes, size));
        if (grid->plan.limiting_rank >= 0) {
            fprintf(stream, "%8d\n", grid->plan.limiting_rank);
        } else {
            fprintf(stream, "%8s\n", "-");
        }
    }
    for (uint32_t i = report->grids_fit; i < report->grid_count; i++) {
        fprintf(stream, "left out: tp %u x pp %u: %s\n", report->grids[i].tp, report->grids[i].pp, report->grids[i].why);
    }
    fprintf(stream, "\n");
}

void kvg_plan_print_table(FILE *stream, const PlanReport *report)
{
    if (report->grids != NULL) {
        print_grids(stream, report);
    }
    print_trunk(stream, report);
    print_ranks(stream, report);
    print_duplicates(stream, report);
    print_weights(stream, report);
    print_capacity(stream, report);
    if (report->has_trace) {
        print_trace(stream, report);
    }
}
