/* What a C program does with the library, and what it must survive. Prints one line and ends with 0 if all is well. */
#define _POSIX_C_SOURCE 200809L
#include "isolane_rpc.h"

#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Static_assert(sizeof(isolane_rpc_decision) == 16, "size");
_Static_assert(offsetof(isolane_rpc_decision, ticket) == 0, "ticket");
_Static_assert(offsetof(isolane_rpc_decision, class_index) == 8, "class_index");
_Static_assert(offsetof(isolane_rpc_decision, dscp) == 12, "dscp");
_Static_assert(offsetof(isolane_rpc_decision, downgraded) == 13, "downgraded");
_Static_assert(offsetof(isolane_rpc_decision, would_downgrade) == 14, "would_downgrade");

#define CHECK(condition)                                                                     \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%d: %s: %s\n", __LINE__, #condition, isolane_rpc_last_error()); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static const char settings[] =
    "mtu_bytes = 5080\n"
    "[[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"15us\"\n"
    "[[class]]\nname = \"low\"\ndscp = 8\n";

static const uint8_t host[] = "10.0.0.2:443";

enum { CALLS = 20000 };

static void *many_calls(void *argument) {
    isolane_rpc *rpc = argument;
    for (int call = 0; call < CALLS; call++) {
        isolane_rpc_decision decision;
        CHECK(isolane_rpc_decide(rpc, host, sizeof host - 1, 0, 32768, &decision) == ISOLANE_RPC_OK);
        CHECK(isolane_rpc_complete(rpc, decision.ticket, 20000) == ISOLANE_RPC_OK);
    }
    return NULL;
}

static pthread_key_t key;
static isolane_rpc *late;

/* Runs when the thread's own values of the library have gone already. */
static void at_the_end(void *argument) {
    (void)argument;
    isolane_rpc_decision decision;
    CHECK(isolane_rpc_decide(late, host, sizeof host - 1, 1, 1, &decision) == ISOLANE_RPC_OK);
    CHECK(isolane_rpc_complete(late, decision.ticket, 1) == ISOLANE_RPC_OK);
    CHECK(isolane_rpc_complete(NULL, decision.ticket, 1) == ISOLANE_RPC_BAD_HANDLE);
    CHECK(isolane_rpc_last_error() != NULL);
    isolane_rpc_close(late);
    CHECK(isolane_rpc_complete(late, decision.ticket, 1) == ISOLANE_RPC_BAD_HANDLE);
}

static void *ends_with_calls(void *argument) {
    isolane_rpc_decision decision;
    CHECK(isolane_rpc_decide(late, host, sizeof host - 1, 1, 1, &decision) == ISOLANE_RPC_OK);
    CHECK(pthread_setspecific(key, &key) == 0);
    return argument;
}

static void a_destructor_calls(void) {
    late = isolane_rpc_open(settings, sizeof settings - 1);
    CHECK(late != NULL);
    CHECK(pthread_key_create(&key, at_the_end) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ends_with_calls, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(pthread_key_delete(key) == 0);
}

/* With aequitas-2 a miss gives the class a level, and a large call uses the level up for minutes. */
static void the_second_algorithm_decides(void) {
    static const char text[] = "algorithm = \"aequitas-2\"\n"
                               "[[class]]\nname = \"high\"\ndscp = 46\ntarget_per_mtu = \"100us\"\n"
                               "[[class]]\nname = \"low\"\ndscp = 8\n";
    isolane_rpc *rpc = isolane_rpc_open(text, sizeof text - 1);
    CHECK(rpc != NULL);
    isolane_rpc_decision first, missed, large, next;
    CHECK(isolane_rpc_decide(rpc, host, sizeof host - 1, 0, 1, &first) == ISOLANE_RPC_OK);
    struct timespec begin, now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &begin) == 0);
    do
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    while ((now.tv_sec - begin.tv_sec) * 1000000000LL + now.tv_nsec - begin.tv_nsec < 1000000);
    CHECK(isolane_rpc_decide(rpc, host, sizeof host - 1, 0, 1, &missed) == ISOLANE_RPC_OK);
    CHECK(!first.downgraded && !missed.downgraded);
    CHECK(isolane_rpc_complete(rpc, missed.ticket, 200000) == ISOLANE_RPC_OK);
    CHECK(isolane_rpc_decide(rpc, host, sizeof host - 1, 0, 1460ULL * 100000, &large) == ISOLANE_RPC_OK);
    CHECK(isolane_rpc_decide(rpc, host, sizeof host - 1, 0, 1, &next) == ISOLANE_RPC_OK);
    CHECK(!large.downgraded && next.downgraded && next.class_index == 1);
    isolane_rpc_close(rpc);
}

static void mistakes(isolane_rpc *rpc) {
    isolane_rpc_decision decision;
    CHECK(isolane_rpc_open(NULL, 4) == NULL);
    CHECK(isolane_rpc_open("moed = 1", 8) == NULL);
    CHECK(strstr(isolane_rpc_last_error(), "settings:1: unknown key moed") != NULL);
    CHECK(isolane_rpc_open("\xff\xfe", 2) == NULL);
    CHECK(isolane_rpc_open(settings, (size_t)-1) == NULL);
    CHECK(isolane_rpc_open_file("/no/such/file", 13) == NULL);
    CHECK(isolane_rpc_decide(NULL, host, 4, 0, 1, &decision) == ISOLANE_RPC_BAD_HANDLE);
    CHECK(isolane_rpc_decide((isolane_rpc *)0x1234, host, 4, 0, 1, &decision) == ISOLANE_RPC_BAD_HANDLE);
    CHECK(isolane_rpc_decide(rpc, NULL, 4, 0, 1, &decision) == ISOLANE_RPC_NULL_POINTER);
    CHECK(isolane_rpc_decide(rpc, host, (size_t)-1, 0, 1, &decision) == ISOLANE_RPC_BAD_LENGTH);
    CHECK(isolane_rpc_decide(rpc, host, 4, 2, 1, &decision) == ISOLANE_RPC_BAD_CLASS);
    CHECK(isolane_rpc_decide(rpc, host, 4, 0, 1, NULL) == ISOLANE_RPC_NULL_POINTER);
    CHECK(isolane_rpc_complete(rpc, 0, 1) < 0);
    CHECK(isolane_rpc_complete(rpc, UINT64_MAX, 1) == ISOLANE_RPC_BAD_TICKET);
    CHECK(isolane_rpc_class_index(rpc, "hihg", 4) == ISOLANE_RPC_BAD_CLASS);
    CHECK(isolane_rpc_metrics(rpc, NULL, 10, NULL) == ISOLANE_RPC_NULL_POINTER);
    CHECK(isolane_rpc_reload(rpc, "x", 1) == ISOLANE_RPC_BAD_SETTINGS);
}

int main(void) {
    CHECK(isolane_rpc_abi_version() == ISOLANE_RPC_ABI_VERSION);
    isolane_rpc *rpc = isolane_rpc_open(settings, sizeof settings - 1);
    CHECK(rpc != NULL);
    CHECK(isolane_rpc_classes(rpc) == 2);
    CHECK(isolane_rpc_class_index(rpc, "low", 3) == 1);
    CHECK(isolane_rpc_class_dscp(rpc, 0) == 46);
    char name[3];
    size_t length = 0;
    CHECK(isolane_rpc_class_name(rpc, 0, name, sizeof name, &length) == ISOLANE_RPC_OK);
    CHECK(strcmp(name, "hi") == 0 && length == 4);

    isolane_rpc_decision decision;
    CHECK(isolane_rpc_decide(rpc, host, sizeof host - 1, 0, 32768, &decision) == ISOLANE_RPC_OK);
    CHECK(decision.ticket != 0 && decision.class_index == 0 && decision.dscp == 46 && !decision.downgraded);
    CHECK(isolane_rpc_complete(rpc, decision.ticket, 1000000000) == ISOLANE_RPC_OK);
    double probability = 0;
    CHECK(isolane_rpc_probability(rpc, host, sizeof host - 1, 0, &probability) == ISOLANE_RPC_OK);
    CHECK(fabs(probability - 0.93) < 1e-6);

    pthread_t threads[4];
    for (int thread = 0; thread < 4; thread++) {
        CHECK(pthread_create(&threads[thread], NULL, many_calls, rpc) == 0);
    }
    for (int thread = 0; thread < 4; thread++) {
        CHECK(pthread_join(threads[thread], NULL) == 0);
    }
    char expected[100];
    snprintf(expected, sizeof expected, "isolane_rpc_issued_total{class=\"high\"} %d\n", 4 * CALLS + 1);
    CHECK(isolane_rpc_metrics(rpc, NULL, 0, &length) == ISOLANE_RPC_OK);
    char *metrics = malloc(length + 1);
    CHECK(metrics != NULL && isolane_rpc_metrics(rpc, metrics, length + 1, &length) == ISOLANE_RPC_OK);
    CHECK(strstr(metrics, expected) != NULL);
    free(metrics);
    /* The quota server of the settings does not exist, and a message reports it; taken messages are removed. */
    char said[4096];
    CHECK(isolane_rpc_said(rpc, said, sizeof said, &length) == ISOLANE_RPC_OK && length == strlen(said));
    CHECK(isolane_rpc_said(rpc, NULL, 10, &length) == ISOLANE_RPC_NULL_POINTER);

    mistakes(rpc);
    a_destructor_calls();
    the_second_algorithm_decides();
    char unaligned[1 + sizeof length];
    CHECK(isolane_rpc_metrics(rpc, NULL, 0, (size_t *)(void *)(unaligned + 1)) == ISOLANE_RPC_OK);
    CHECK(isolane_rpc_forget(rpc, host, sizeof host - 1) == ISOLANE_RPC_OK);
    isolane_rpc_close(rpc);
    isolane_rpc_close(rpc);
    CHECK(isolane_rpc_decide(rpc, host, 4, 0, 1, &decision) == ISOLANE_RPC_BAD_HANDLE);
    isolane_rpc_close(NULL);
    puts("all is well");
    return 0;
}
