#include "launcher/manual/man_facts.h"

#include <algorithm>
#include <string>

#include "base/text.h"

namespace dslaunch::launcher {
namespace {

// The commands that reach other hosts.
constexpr const char* kOnHosts =
    "run|verify|tune|health|generate|eval|serve|hosts|exec|push|stop|ps";

// clang-format off
constexpr ManFact kVariables[] = {
    {"CUDA_VISIBLE_DEVICES", "the GPUs of this machine that a job may use; dslaunch sets it for each rank", "run|verify|tune|health|plan|generate"},
    {"DS_ENV_FILE", "name of the file of variables that is read in place of .deepspeed_env", "run|verify|tune|exec"},
    {"DSLAUNCH_HELP_FORM", "json: --help prints its page as one line of JSON", ""},
    {"DSLAUNCH_SSH_CONFIG", "ssh configuration file, as for --ssh-config", kOnHosts},
    {"DSLAUNCH_TOKEN", "the secret that joining agents must present; --token-file takes precedence", "run|verify|tune|agent"},
    {"DSLAUNCH_TORCH", "folder of a torch package: dsworker uses its libraries if dslaunch has none of its own", "run|verify|tune|plan|model|health|generate|serve|data|eval"},
    {"DSL_ISA", "the newest instructions that kernels on processors may use: scalar, avx2, avx512, …", "run|verify|tune|generate|eval|serve"},
    {"GLOO_SOCKET_IFNAME", "the network interface over which ranks on processors exchange data", "run|verify|tune|health"},
    {"NO_COLOR", "not empty: messages have no colours", ""},
    {"OMP_NUM_THREADS", "threads of each rank; default: the processors of the host, divided among its ranks", "run|verify|tune|generate|eval|serve"},
    {"OMP_WAIT_POLICY", "how idle threads wait, as in OpenMP; default: they spin for a short time", "run|verify|tune|generate|eval|serve"},
    {"PMIX_NAMESPACE", "set by mpirun: dslaunch was started once for each rank, and one of these processes starts the job", "run|verify|tune"},
    {"PYTHONPATH", "dslaunch adds the working directory for scripts on other hosts", "run"},
    {"SLURM_JOB_ID, SLURM_JOB_NODELIST, …", "inside an allocation the job uses its hosts and ends before its time limit", "run|verify|tune|health|exec|hosts|push"},
    {"SOURCE_DATE_EPOCH", "the date in the man pages, in seconds of Unix time; default: the date of the program", "man"},
    {"TERM", "dumb or empty: no progress line and no colours", ""},
    {"TMPDIR", "folder for the archive that is sent; default: /tmp", "push"},
    {"VIRTUAL_ENV, CONDA_PREFIX", "the environment whose Python runs a script", "run"},
    {"XDG_CACHE_HOME", "folder of caches; default: ~/.cache", ""},
    {"XDG_RUNTIME_DIR", "folder of the sockets through which agents on this machine join", "run|agent"},
    {"XDG_STATE_HOME", "folder of the records of jobs; default: ~/.local/state", "run|verify|tune|ps|top|logs|stop|report|generate|eval|serve"},
};

constexpr ManFact kFiles[] = {
    {"/job/hostfile", "the hosts of a job without --hostfile, one per line: node1 slots=4", kOnHosts},
    {"ds_config.json", "the config beside the model, unless --config names another or the model contains one", "run|verify|tune|plan|config"},
    {"runs/NAME-DATE", "results of a training without --output", "run"},
    {".deepspeed_env, ~/.deepspeed_env", "variables for workers on other hosts, one NAME=VALUE per line", "run|verify|tune|exec"},
    {"~/.ssh/config, ~/.ssh/known_hosts", "how to reach the hosts, and the keys of the hosts", kOnHosts},
    {"~/.local/state/dslaunch", "records of jobs, which ps, top, logs, stop and report read", "run|verify|tune|ps|top|logs|stop|report|generate|eval|serve"},
    {"~/.cache/dslaunch", "caches that may be deleted: hashes of files, and the best settings of disks", "run|verify|tune|io-bench|push|generate"},
};
// clang-format on

constexpr ManCode kCodes[] = {
    {ExitCode::kOk, "every rank ended well"},
    {ExitCode::kUsage, "a mistake in the command line or the hostfile"},
    {ExitCode::kConfig, "an unknown key, a bad value or something unsupported in the config"},
    {ExitCode::kInput, "a fault in the model or the data"},
    {ExitCode::kHosts, "a host cannot be reached or cannot start an agent"},
    {ExitCode::kRankFailed, "a rank ended with an error or by a signal"},
    {ExitCode::kHang, "a rank stopped making progress"},
    {ExitCode::kInternal, "a bug of dslaunch"},
    {ExitCode::kSetup, "a machine lacks a library, device, port or memory, or a limit is too low"},
    {ExitCode::kDisk, "a file cannot be read or written: full, read-only or broken"},
    {ExitCode::kCheckpoint, "no usable checkpoint, or saving one failed"},
    {ExitCode::kDiverged, "the loss is not finite, or ranks do not agree"},
    {ExitCode::kPeerLost, "in a rank's own log: another rank was lost first"},
    {ExitCode::kInterrupted, "it was interrupted, or the launcher disappeared"},
};

}  // namespace

std::span<const ManFact> variables() {
    return kVariables;
}

std::span<const ManFact> usual_files() {
    return kFiles;
}

std::span<const ManCode> exit_codes() {
    return kCodes;
}

bool concerns(const ManFact& fact, std::string_view command) {
    if (fact.commands.empty() || command.empty()) return true;
    return std::ranges::count(split(fact.commands, '|'), command) > 0;
}

}  // namespace dslaunch::launcher
