#include "launch/rank/memory_limit.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/launch/suite.h"

static char root[64];

static void write_number(const char *folder, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void make_folder(const char *folder)
{
    char path[256];

    snprintf(path, sizeof path, "%s%s", root, folder);
    ck_assert_int_eq(mkdir(path, 0700), 0);
}

START_TEST(test_memory_limit_is_the_least_of_all_groups_above)
{
    snprintf(root, sizeof root, "/tmp/kvg_cgroup_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    make_folder("/job");
    make_folder("/job/step");
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/job/step"), UINT64_MAX);
    write_number("/job/step", "memory.max", "max\n");
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/job/step"), UINT64_MAX);
    write_number("/job", "memory.max", "1000\n"); /* set by the job, not by the step */
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/job/step"), 1000);
    write_number("/job", "memory.current", "300\n");
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/job/step"), 700);
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/job"), 700);
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/"), UINT64_MAX);
    write_number("/job/step", "memory.max", "699\n");
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/job/step"), 699);
    write_number("", "memory.max", "5\n"); /* a container's own root */
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/job/step"), 5);
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/"), 5);
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/elsewhere"), 5);
    write_number("", "memory.current", "6\n");
    ck_assert_uint_eq(kvg_memory_limit_cgroup(root, "/"), 0);
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

START_TEST(test_memory_limit_of_this_process)
{
    struct rlimit limit;

    ck_assert_uint_gt(kvg_memory_limit_here(), 1 << 20);
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &limit), 0);
    ck_assert_uint_eq(kvg_memory_limit_addresses(), limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : (uint64_t)limit.rlim_cur);
#if !defined(__SANITIZE_ADDRESS__) /* its shadow is larger */
    limit.rlim_cur = UINT64_C(8) << 30;
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &limit), 0);
    ck_assert_uint_eq(kvg_memory_limit_addresses(), UINT64_C(8) << 30);
#endif
}
END_TEST

int main(void)
{
    const TTest *const tests[] = { test_memory_limit_is_the_least_of_all_groups_above, test_memory_limit_of_this_process };

    return run_suite("memory_limit", tests, sizeof tests / sizeof *tests);
}
