#include "launcher/tune/tune_command.h"

#include <fmt/core.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>

#include "base/error.h"
#include "base/log.h"
#include "base/new_files.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/file_faults.h"
#include "base/text/words.h"
#include "launch/plan/join_token.h"
#include "launch/supervise/job.h"
#include "launcher/options/machine.h"
#include "launcher/run/build_job.h"
#include "launcher/run/commands.h"
#include "launcher/run/mpi_copies.h"
#include "launcher/run/training_job_checks.h"
#include "launcher/tune/forecasts.h"
#include "launcher/tune/tune_options.h"
#include "launcher/tune/tune_report.h"
#include "launcher/tune/tune_search.h"
#include "storage/disk/output_place.h"

namespace dslaunch::launcher {
namespace {

constexpr const char* kOptimalName = "ds_config_optimal.json";

// Prints where the config is and how to train with it.
void tell_config(const TuneOptions& options, const std::vector<std::string>& set) {
    if (!options.output.empty()) {
        print_message(fmt::format(
            "dslaunch: the config is in {0}; train with the same options{1} and "
            "--config {0}",
            shell_word(options.output), options.by_autotuning ? ", without --autotuning," : ""));
        return;
    }
    if (set.empty()) return;
    std::string words;
    for (const std::string& assignment : set) words += " --set " + shell_word(assignment);
    print_message(
        fmt::format("dslaunch: train with these options, or write a config with -o FILE: "
                    "{}",
                    words.substr(1)));
}

// Fails with the cause of the last failure, because no trial worked.
[[noreturn]] void fail_all(const SearchResult& result) {
    if (result.interrupted)
        fail(ExitCode::kInterrupted, "interrupted before a trial was measured: nothing was chosen");
    if (result.tried.empty())
        fail(ExitCode::kUsage, "there was no time for a trial: give more --minutes");
    const TriedConfig& last = result.tried.back();
    if (last.exit_code < static_cast<int>(ExitCode::kUsage))
        fail(ExitCode::kUsage, "no trial was measured: {}; give more --minutes", last.failure);
    throw Error(static_cast<ExitCode>(last.exit_code),
                fmt::format("no trial worked; the last one: {}", last.failure));
}

// Writes the chosen config, and prints the result. Returns the outcome.
TuneOutcome conclude(const TuneOptions& options, const JobConfig& config,
                     const Forecasts& forecasts, const SearchResult& result) {
    const std::string metric = config::autotuning_of(config.resolved).metric;
    const std::optional<int> best = result.order.best();
    const std::string why = best ? choice_text(result) : "";
    const std::vector<std::string> set =
        best ? forecasts.candidates[static_cast<size_t>(*best)].set : std::vector<std::string>();
    // The file is written first, because printing fails if nobody reads stdout any more.
    if (best && !options.output.empty())
        write_file_atomically(options.output,
                              tuned_config_text(config.text, set, why, options.output));
    if (options.json) {
        fmt::print("{}\n", search_json(forecasts, result));
    } else {
        fmt::print("{}", search_text(forecasts, result, metric, terminal_columns(STDOUT_FILENO)));
    }
    std::fflush(stdout);
    if (!best) fail_all(result);
    print_message(fmt::format("dslaunch: {}: {}",
                              result.interrupted ? "interrupted; the best config so far" : "chosen",
                              why));
    tell_config(options, set);
    return {result.interrupted ? static_cast<int>(ExitCode::kInterrupted) : 0, set};
}

// Discards the signals that are pending at SIGNAL_FD, because the search has obeyed them already.
void drain(int signal_fd) {
    signalfd_siginfo taken{};
    while (::read(signal_fd, &taken, sizeof taken) == sizeof taken) {
    }
}

TuneOutcome tune(TuneOptions options) {
    const auto began = std::chrono::steady_clock::now();
    const auto deadline =
        began + std::chrono::milliseconds(static_cast<int64_t>(options.minutes * 60'000));
    const UniqueFd signals = launch::open_end_signals();
    ::signal(SIGPIPE, SIG_IGN);  // a search goes on even if no program reads its lines
    set_log_level(options.run.log.quiet ? LogLevel::kWarn : parse_log_level(options.run.log.level));
    const Machine machine = Machine::this_one();
    if (MpiCopies::is_one(options.run, machine))
        fail(ExitCode::kUsage,
             "mpirun has started several copies of this command, but a search starts its own jobs: "
             "start it once, with a --hostfile");
    const BuiltJob job = build_job(options.run, machine);
    print_notes(job, options.run);
    JobConfig config = config_of_job(options.run, job.spec);
    // Reports errors in the job before the first trial. Otherwise each trial would fail with the
    // same error.
    launch::JobSpec trial = job.spec;
    trial.output_directory.clear();
    static_cast<void>(look_into_training_job(options.run, trial));
    const config::AutotuningConfig tuning = config::autotuning_of(config.resolved);
    if (!options.output.empty()) storage::require_new_file(options.output, options.force);
    if (!options.run.log.quiet)
        print_message(fmt::format("dslaunch: tune: forecasting; at most {:g} minutes in all",
                                  options.minutes));
    const Forecasts forecasts = make_forecasts(options.run, job.spec, deadline, signals.get());
    const SearchWishes wishes{rules_of(tuning, options.trials, options.tuner),
                              steps_of(tuning),
                              config::trial_overrides(config.resolved),
                              deadline,
                              signals.get(),
                              options.run.log.quiet};
    const SearchResult result = search_configs(forecasts, options.run, wishes);
    drain(signals.get());
    launch::release_end_signals();
    return conclude(options, config, forecasts, result);
}

}  // namespace

TuneOutcome autotune(RunOptions options) {
    options.autotuning.clear();
    require_startable(options);
    TuneOptions wishes;
    wishes.run = std::move(options);
    wishes.by_autotuning = true;
    wishes.run.output.clear();
    const Machine machine = Machine::this_one();
    const JobConfig config = config_of_job(wishes.run, build_job(wishes.run, machine).spec);
    const config::AutotuningConfig tuning = config::autotuning_of(config.resolved);
    if (const std::string text = unexpanded_text(tuning.results_dir); !text.empty())
        fail(ExitCode::kConfig, "autotuning.results_dir: {}", text);
    wishes.output = resolved_path(tuning.results_dir, machine.directory) + "/" + kOptimalName;
    wishes.force = tuning.overwrite;
    std::error_code unreadable;
    const bool is_new = !std::filesystem::exists(tuning.results_dir, unreadable);
    if (make_folders(resolved_path(tuning.results_dir, machine.directory)) != 0)
        fail(ExitCode::kDisk, "autotuning.results_dir: {}: cannot make this folder",
             printable(tuning.results_dir));
    try {
        return tune(std::move(wishes));
    } catch (const Error&) {
        if (is_new) static_cast<void>(::rmdir(tuning.results_dir.c_str()));
        throw;
    }
}

int tune_command(CommandWords arguments) {
    launch::hold_end_signals();
    TuneOptions options = parse_tune_options(arguments);
    if (options.help) {
        launch::release_end_signals();
        print_help(tune_page());
        return 0;
    }
    if (options.run.version) {
        fmt::print("dslaunch {}\n", DSL_VERSION);
        return 0;
    }
    return tune(std::move(options)).code;
}

}  // namespace dslaunch::launcher
