/* SPANK plug-in of Slurm: the options --isolane-class and --isolane-weight of srun, sbatch and salloc.
 *
 * The plug-in passes the values to the prolog, as SPANK_ISOLANE_CLASS and SPANK_ISOLANE_WEIGHT. The prolog decides: a value counts
 * only where the operator's rule permits it. Compile it against the headers of the site's Slurm (Debian: libslurm-dev):
 *
 *     cc -shared -fPIC -o isolane_spank.so spank.c
 *
 * and add a line to plugstack.conf:
 *
 *     optional /usr/lib/isolane/slurm/isolane_spank.so
 */
#include <slurm/spank.h>
#include <stdlib.h>
#include <string.h>

SPANK_PLUGIN(isolane, 1);

/* The largest weight, as in crates/rdma/session/src/message.rs. */
#define WEIGHT_MAX 1048576

enum { CLASS, WEIGHT };

static const char *const classes[] = {"latency", "throughput", "bandwidth", "auto"};
/* The values of the options; Slurm keeps the texts as long as the program runs. */
static const char *chosen[2];

static int choose(int which, const char *text, int remote)
{
    int valid = 0;

    /* In slurmstepd the prolog has already run. */
    if (remote)
        return ESPANK_SUCCESS;
    if (which == CLASS) {
        for (size_t at = 0; at < sizeof classes / sizeof *classes; at++)
            valid |= strcmp(text, classes[at]) == 0;
        if (!valid)
            slurm_error("--isolane-class=%s: must be latency, throughput, bandwidth or auto", text);
    } else {
        char *end = NULL;
        long weight = strtol(text, &end, 10);
        valid = end != text && *end == '\0' && weight >= 1 && weight <= WEIGHT_MAX;
        if (!valid)
            slurm_error("--isolane-weight=%s: must be a whole number from 1 to %d", text, WEIGHT_MAX);
    }
    if (!valid)
        return ESPANK_BAD_ARG;
    chosen[which] = strdup(text);
    return chosen[which] ? ESPANK_SUCCESS : ESPANK_ERROR;
}

static struct spank_option options[] = {
    {"isolane-class", "CLASS", "class of the job's RDMA traffic: latency, throughput, bandwidth, auto", 1, CLASS, choose},
    {"isolane-weight", "N", "weight of the job among the jobs of a machine", 1, WEIGHT, choose},
};

int slurm_spank_init(spank_t spank, int argc, char **argv)
{
    (void)argc;
    (void)argv;
    for (size_t at = 0; at < sizeof options / sizeof *options; at++) {
        spank_err_t error = spank_option_register(spank, &options[at]);
        if (error != ESPANK_SUCCESS)
            return error;
    }
    return ESPANK_SUCCESS;
}

/* Runs in srun, sbatch and salloc, after the options. */
int slurm_spank_init_post_opt(spank_t spank, int argc, char **argv)
{
    static const char *const names[] = {"ISOLANE_CLASS", "ISOLANE_WEIGHT"};

    (void)argc;
    (void)argv;
    if (spank_remote(spank))
        return ESPANK_SUCCESS;
    for (int which = CLASS; which <= WEIGHT; which++) {
        spank_err_t error;

        if (!chosen[which])
            continue;
        error = spank_job_control_setenv(spank, names[which], chosen[which], 1);
        if (error != ESPANK_SUCCESS) {
            slurm_error("isolane: %s does not reach the prolog: %s", names[which], spank_strerror(error));
            return error;
        }
    }
    return ESPANK_SUCCESS;
}
