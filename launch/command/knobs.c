#include <stdio.h>
#include <string.h>

#include <kvgrid/policy.h>

#include "launch/command/command.h"
#include "launch/command/options.h"

int kvg_command_knobs(int argc, char **argv)
{
    int    help = 0;
    Option options[] = { { .name = "--help", .kind = OPTION_FLAG, .target = &help, .help = "this text" } };

    KvgStatus status = kvg_options_parse(options, 1, argc, argv);
    if (status != KVG_OK) {
        return kvg_command_refuse("knobs", status);
    }
    if (help) {
        printf("usage: kvgrid knobs\n\nEvery knob, a setting read from the environment: its value now, where that comes from, and what it means.\n");
        return KVG_EXIT_DONE;
    }
    printf("%-22s %-10s %-24s %s\n", "knob", "value", "source", "meaning");
    for (int i = 0; i < kvg_knob_count(); i++) {
        KvgKnob knob;

        status = kvg_knob_get(i, &knob);
        if (status != KVG_OK) {
            return kvg_command_refuse("knobs", status);
        }
        printf("%-22s %-10s %-24s %s%s\n", knob.name, knob.value[0] != '\0' ? knob.value : "unset", knob.source,
               knob.unread ? "(this value cannot be read) " : "", knob.meaning);
    }
    const KvgPolicy *policy;
    status = kvg_policy_process(&policy); /* a value that cannot be read is shown above, and said here */
    return status == KVG_OK ? KVG_EXIT_DONE : kvg_command_refuse("knobs", status);
}
