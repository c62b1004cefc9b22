#include "child.h"

#include "sampler/othertracer.h"

#include <pthread.h>
#include <string.h>
#include <sys/ptrace.h>

enum { THREADS = 3 };

_Noreturn static void *wait_for_ever(void *argument)
{
    struct child_page *page = argument;
    page->tids[page->turns++] = (int)gettid();
    page->go++;
    for (;;)
        pause();
}

_Noreturn static void have_threads(struct child_page *page)
{
#ifdef PR_SET_PTRACER
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY); /* where Yama is: the holder is no ancestor */
#endif
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, wait_for_ever, page);
        child_wait(&page->go, i + 1);
    }
    page->ready = 1;
    for (;;)
        pause();
}

static pid_t tid_to_hold;

/* Another tracer. It goes when it is killed. */
_Noreturn static void hold(struct child_page *page)
{
    prctl(PR_SET_NAME, "holder");
    if (ptrace(PTRACE_SEIZE, tid_to_hold, NULL, NULL) == 0)
        page->ready = 1;
    for (;;)
        pause();
}

static struct child hold_thread(pid_t tid)
{
    tid_to_hold = tid;
    return child_start(hold);
}

struct scene {
    struct child target;
    struct targets targets;
    struct process *process;
    struct thread *threads[THREADS];
    struct othertracer first;
};

static void scene_init(struct scene *scene)
{
    memset(scene, 0, sizeof(*scene));
    scene->target = child_start(have_threads);
    assert_int_equal(targets_init(&scene->targets), 0);
    int fd = procfs_open_process(scene->target.pid);
    assert_int_equal(targets_add_process(&scene->targets, scene->target.pid, fd, false, &scene->process), 0);
    for (int i = 0; i < THREADS; i++) {
        pid_t tid = scene->target.page->tids[i];
        assert_int_equal(targets_add_thread(&scene->targets, scene->process, tid, false, 0), 0);
        scene->threads[i] = targets_find_thread(&scene->targets, tid);
    }
}

static void scene_deinit(struct scene *scene)
{
    targets_deinit(&scene->targets);
    child_end(&scene->target);
}

static void test_nobody(void **state)
{
    (void)state;
    struct scene scene;
    scene_init(&scene);
    othertracer_note(&scene.first, scene.threads[0], false, 1);
    assert_int_equal(scene.first.target_pid, 0);
    assert_false(othertracer_holds(scene.process, 1));
    scene_deinit(&scene);
}

static void test_comes_and_goes(void **state)
{
    (void)state;
    struct scene scene;
    scene_init(&scene);
    struct child holder = hold_thread(scene.threads[1]->tid);
    othertracer_note(&scene.first, scene.threads[0], false, 1);
    assert_false(othertracer_holds(scene.process, 1)); /* that thread shows nothing */
    othertracer_note(&scene.first, scene.threads[1], false, 2);
    assert_int_equal(scene.first.target_pid, scene.target.pid);
    assert_int_equal(scene.first.pid, holder.pid);
    assert_string_equal(scene.first.comm, "holder");
    assert_true(othertracer_holds(scene.process, 2));
    assert_true(othertracer_holds(scene.process, 2 + OTHERTRACER_LOOK_NS));
    pid_t gone = holder.pid;
    child_end(&holder);
    /* Not looked for all the time. */
    assert_true(othertracer_holds(scene.process, 1 + 2 * OTHERTRACER_LOOK_NS));
    assert_false(othertracer_holds(scene.process, 2 + 2 * OTHERTRACER_LOOK_NS));
    assert_int_equal(scene.first.pid, gone); /* still to be told */
    scene_deinit(&scene);
}

/* Its first thread ends, or is let go: it has others still. */
static void test_has_other_threads(void **state)
{
    (void)state;
    struct scene scene;
    scene_init(&scene);
    struct child one = hold_thread(scene.threads[0]->tid);
    struct child two = hold_thread(scene.threads[2]->tid);
    othertracer_note(&scene.first, scene.threads[0], false, 0);
    targets_remove_thread(&scene.targets, scene.threads[0]);
    assert_true(othertracer_holds(scene.process, OTHERTRACER_LOOK_NS));
    assert_int_equal(scene.process->traced_tid, scene.threads[2]->tid);
    child_end(&two);
    assert_false(othertracer_holds(scene.process, 2 * OTHERTRACER_LOOK_NS));
    child_end(&one);
    scene_deinit(&scene);
}

/* Our own stops are no sign of another. */
static void test_ourselves(void **state)
{
    (void)state;
    struct scene scene;
    scene_init(&scene);
    assert_int_equal(ptrace(PTRACE_SEIZE, scene.threads[0]->tid, NULL, NULL), 0);
    assert_int_equal(ptrace(PTRACE_INTERRUPT, scene.threads[0]->tid, NULL, NULL), 0);
    assert_int_equal(waitpid(scene.threads[0]->tid, NULL, __WALL), scene.threads[0]->tid);
    othertracer_note(&scene.first, scene.threads[0], false, 1);
    assert_false(othertracer_holds(scene.process, 1));
    assert_int_equal(ptrace(PTRACE_DETACH, scene.threads[0]->tid, NULL, NULL), 0);
    scene_deinit(&scene);
}

/* Refused, and nobody to be seen: it has gone meanwhile, or cannot be seen from here. Left alone for a while. */
static void test_refused_by_nobody(void **state)
{
    (void)state;
    struct scene scene;
    scene_init(&scene);
    othertracer_note(&scene.first, scene.threads[0], true, 1);
    assert_int_equal(scene.first.target_pid, scene.target.pid);
    assert_int_equal(scene.first.pid, 0);
    assert_true(othertracer_holds(scene.process, OTHERTRACER_LOOK_NS));
    assert_false(othertracer_holds(scene.process, 1 + OTHERTRACER_LOOK_NS));
    /* One that can be named is better to tell. */
    struct child holder = hold_thread(scene.threads[0]->tid);
    othertracer_note(&scene.first, scene.threads[0], true, 2);
    assert_int_equal(scene.first.pid, holder.pid);
    child_end(&holder);
    scene_deinit(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_comes_and_goes),
        cmocka_unit_test(test_ourselves),
        cmocka_unit_test(test_has_other_threads),
        cmocka_unit_test(test_refused_by_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
