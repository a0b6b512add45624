/* Recurrent: one token's update of one layer's share, elementwise. See recurrent.h. */
#include <kvgrid/recurrent.h>

static void shift_taps(const float *in, const float *x, uint64_t channels, uint32_t taps, float *out)
{
    for (uint64_t c = 0; c < channels; c++) {
        for (uint32_t j = 0; j + 1 < taps; j++) out[j] = in[j + 1]; /* ascending, so that in and out may be one */
        out[taps - 1] = x[c];
        in += taps;
        out += taps;
    }
}

/* Two loops, since a compiler that cannot tell whether columns are one or apart leaves both scalar. Products are rounded, then added: built
 * without contraction. */
static void update_apart(const float *restrict in, const float *restrict u, float decay, uint64_t elements, float *restrict out)
{
    for (uint64_t e = 0; e < elements; e++) {
        float decayed = decay * in[e];
        out[e] = decayed + u[e];
    }
}

static void update_in_place(const float *restrict u, float decay, uint64_t elements, float *restrict state)
{
    for (uint64_t e = 0; e < elements; e++) {
        float decayed = decay * state[e];
        state[e] = decayed + u[e];
    }
}

void kvg_recurrent_token(const float *conv_in, const float *state_in, const float *x, const float *u, float decay,
                         uint64_t channels, uint32_t taps, uint64_t elements, float *conv_out, float *state_out)
{
    if (taps > 0) shift_taps(conv_in, x, channels, taps, conv_out);
    if (state_in == state_out) {
        update_in_place(u, decay, elements, state_out);
    } else {
        update_apart(state_in, u, decay, elements, state_out);
    }
}

void kvg_recurrent_pass(const KvRecurrentPass *pass)
{
    const uint64_t  conv_elements = pass->channels * pass->taps;
    KvRecurrentPass at = *pass;

    for (uint32_t i = 0; i < pass->rows; i++) {
        kvg_recurrent_token(at.conv + at.read * conv_elements, at.state + at.read * at.elements, at.x + i * at.channels, at.u + i * at.elements, at.decay,
                            at.channels, at.taps, at.elements, at.conv + at.write * conv_elements, at.state + at.write * at.elements);
        kvg_recurrent_pass_advance(&at, 1);
    }
}
