// dsworker train MODEL: one rank of a training job. Reads its place in the job from the
// environment, builds the parts of a step, and trains. Rank 0 writes the trained weights.
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/busy_neighbours.h"
#include "base/text.h"
#include "decoder/codec/text_codec.h"
#include "graph/archive/scalar_types.h"
#include "graph/segment/compute_context.h"
#include "job/files/archive_hash.h"
#include "job/process/process_resources.h"
#include "job/process/rank_failure.h"
#include "job/run/describe_run.h"
#include "job/run/training_rank.h"
#include "job/setup/written_parameters.h"
#include "job/verify/job_verifier.h"
#include "kernels/flat_optimizer.h"
#include "launch/machine/machine_name.h"
#include "launch/machine/machine_topology.h"
#include "runtime/comm/host/hang_limit.h"
#include "runtime/compute/rank_device.h"
#include "runtime/train/reporter.h"
#include "runtime/train/trainer.h"
#include "worker/rank_process.h"
#include "worker/roles.h"
#include "worker/train/rank_progress.h"
#include "worker/train/text_samples.h"
#include "worker/train/train_messages.h"

namespace dslaunch::worker {

namespace {

struct TrainArguments {
    job::TrainingOptions rank;
    std::string expected_sha256;
    std::string scratch;  // verify: a folder for values that do not fit in memory
    bool verify = false;  // compare each step with one rank that computes the whole
    std::string pinned;   // text that names the threads' processors
};

TrainArguments parse(int argc, char** argv, bool& help) {
    TrainArguments arguments;
    job::TrainingOptions& rank = arguments.rank;
    rank.timeout_s = std::chrono::duration<double>(runtime::kHangLimit).count();
    CommandLine app({.does = "Trains one rank of a job; dslaunch starts it."}, "dsworker train");
    app.add("MODEL", rank.job.model_path, "an archive (.pt2, .pt) or a Hugging Face folder")
        .required();
    app.add("--config FILE", rank.job.config_path, "ds_config.json");
    app.add("--set KEY=VALUE", rank.job.overrides,
            "override one value; with OPTION:KEY=VALUE, messages name OPTION instead of --set; "
            "repeatable");
    app.add("--begun KEY=VALUE", rank.job.begun,
            "a value of the resumed run, used if nothing else sets it; repeatable");
    app.add("--output DIR", rank.output, "folder for weights, metrics and logs");
    app.add("--resume DIR", rank.resume, "auto, or a folder of checkpoints");
    app.add("--new-data", rank.new_data, "resume with other data");
    app.add("--expect-sha256 HASH", arguments.expected_sha256, "refuse any other archive");
    app.add("--verify", arguments.verify, "compare each step with one rank alone");
    app.add("--scratch DIR", arguments.scratch, "where verify keeps what does not fit in memory");
    app.add("--trust-model", rank.job.trust_model, kTrustModelHelp);
    app.add("--segments N", rank.job.segments,
            "number of segments to cut the model into; 0: by whole layers");
    app.add("--timeout SECONDS", rank.timeout_s, "seconds that a rank waits for another one")
        .range(0.1, 86'400.0);
    help = !app.parse({argv + 1, argv + argc});
    return arguments;
}

// One rank of a training job: sets up its parts, meets the other ranks, and takes the steps.
class TrainRole {
  public:
    TrainRole(TrainArguments arguments, launch::WorkerEnvironment environment,
              runtime::Reporter& reporter)
        : arguments_(std::move(arguments)),
          environment_(std::move(environment)),
          reporter_(reporter),
          progress_(reporter, environment_.rank == 0),
          rank_(options(), environment_, reporter) {}

    void run() {
        if (first())
            log_detail("ranks", "{} on {}, {} each, {}; {} kernels", environment_.world_size,
                       counted(rank_.place().node_count(), "host"), counted(threads(), "thread"),
                       arguments_.pinned, kernels::isa_name(kernels::isa_in_use()));
        progress_.start();
        archive_.emplace(job::identify_archive(model(), arguments_.expected_sha256, first()));
        set_up();
        job::require_unchanged(*archive_, model());
        // All ranks measure at the same time, because the ranks of a host slow each other down, as
        // they do in training.
        std::optional<job::JobRates> rates;
        if (rank_.config().trace_step > 0)
            rates = rank_.setup().on_gpu ? job::rates_on_gpu(rank_.setup(), rank_.gpu().rates, {})
                                         : job::measure_job_rates(rank_.setup(), {threads(), 0});
        rank_.reserve();
        rank_.meet();
        rank_.resume();
        rank_.place_weights(std::move(rates));
        if (arguments_.verify) {
            progress_.set_up("reading the model to compare with");
            watch();
        }
        job::keep_freed_memory();
        take_steps();
    }

    // Ends the process because of ERROR: makes the ranks that wait for this rank fail, and reports
    // the reason.
    [[noreturn]] void leave(const std::exception_ptr& error) {
        const job::RankFailure failure = job::failure_of(error);
        rank_.poison(fmt::format("rank {} failed: {}", environment_.rank, failure.message));
        end_rank(reporter_, failure, "train");
    }

  private:
    [[nodiscard]] bool first() const { return environment_.rank == 0; }
    [[nodiscard]] int threads() const { return arguments_.rank.threads; }
    [[nodiscard]] const std::string& model() const { return arguments_.rank.job.model_path; }
    [[nodiscard]] const std::string& output() const { return arguments_.rank.output; }
    // Returns the rank's options, and makes the rank report each part of its set-up to progress_.
    [[nodiscard]] job::TrainingOptions options() {
        job::TrainingOptions options = arguments_.rank;
        options.job.begins = [this](std::string_view what) { progress_.set_up(what); };
        return options;
    }

    void set_up() {
        rank_.set_up();
        if (!first()) return;
        const job::JobSetup& setup = rank_.setup();
        job::describe_run(setup,
                          {model(), output(), rank_.room().text(), rank_.room().brief(), threads(),
                           decoder::kByteVocabMax},
                          environment_, reporter_);
    }

    // Returns the processors of this rank's host, and the number of ranks that share them. The
    // number is 1 if this rank has processors of its own. All simulated hosts are this machine.
    [[nodiscard]] ProcessorShare processor_share() const {
        const bool shares = arguments_.pinned.starts_with("not");
        const bool pretended =
            rank_.place().node_count() > 1 && std::getenv(launch::kHostVariable) == nullptr;
        const int ranks = pretended ? environment_.world_size : environment_.local_world_size;
        return {launch::processors_allowed(), shares ? ranks : 1, threads()};
    }

    // Sets up the verifier, which compares each step with the same step on one rank.
    void watch() {
        require_verifiable(rank_.setup());
        verifier_.emplace(job::VerifierParts{&rank_.setup(), &rank_.comms(), &rank_.state(),
                                             &rank_.steps(), model(), arguments_.scratch});
        rank_.state().set_witness(&*verifier_);
    }

    // Takes the steps and writes the weights. Meanwhile heartbeats tell the launcher what this rank
    // is doing.
    void take_steps() {
        const job::JobSetup& setup = rank_.setup();
        const config::RunConfig& config = rank_.config();
        const storage::TrainingState& resumed = rank_.resumed();
        runtime::BatchLoader loader(
            setup.data->train, {config.batch, setup.data_rank(), config.seed, config.data.shuffle,
                                resumed.step, resumed.samples_seen});
        runtime::SegmentRunner segments = rank_.make_segments(
            [&](int64_t step, int64_t micro_step) { return loader.take(step, micro_step); });
        std::optional<runtime::Evaluator> evaluator;
        if (setup.data->eval) evaluator.emplace(rank_.evaluator_parts(), *setup.data->eval);
        if (evaluator && job::writes_parameters(setup))
            job::check_held_out_writes(setup, evaluator->prepare().lowered());
        if (!verifier_ && rank_.all_leave()) return leave_untrained(resumed);
        std::optional<TextSamples> samples;
        if (config.samples.on())
            samples.emplace(TextSampleParts{&config, model(), output(), resumed.step,
                                            &rank_.comms().job(), &reporter_},
                            rank_.writer_parts());
        runtime::TrainerParts parts = rank_.trainer_parts();
        if (samples) parts.after_evaluation = [&](int64_t step) { samples->write(step); };
        parts.steps.segments = &segments;
        parts.loader = &loader;
        parts.evaluator = evaluator ? &*evaluator : nullptr;
        if (verifier_) parts.between = &*verifier_;
        const graph::ComputeContext context(true, graph::scalar_type_of(config.precision.compute),
                                            rank_.gpu().device.type());
        const graph::TensorGroupScope scope(rank_.comms().tensor());
        runtime::Trainer trainer(std::move(parts));
        const std::jthread heartbeats = progress_.follow(trainer);
        tell_ready(resumed);
        std::optional<BusyNeighbours> neighbours;
        if (rank_.place().local_rank == 0) neighbours.emplace("train", processor_share());
        run(trainer);
    }

    // Lets TRAINER train, and writes the weights.
    void run(runtime::Trainer& trainer) {
        const config::RunConfig& config = rank_.config();
        const runtime::DiskTraffic before =
            rank_.state().disk_traffic().value_or(runtime::DiskTraffic{});
        const runtime::TrainResult result = run_or_leave(trainer);
        rank_.states().report_offload(rank_.comms().job(), rank_.state(),
                                      rank_.steps().placement_text(), before, result);
        if (verifier_) {
            const std::string report = verifier_->report();
            if (first()) fmt::print("{}\n", report);
            return;
        }
        if (first()) log_links(result);
        if (first() && config.comms_logger.enabled && result.comms.empty())
            log_info("comms",
                     "no operation moved data between ranks: the ranks of one host share "
                     "memory");
        progress_.begin("writing the weights");
        const job::WrittenWeights written = rank_.write_weights(result);
        rank_.leave_groups();
        finish(result, written);
    }

    void leave_untrained(const storage::TrainingState& resumed) const {
        rank_.leave_groups();
        if (first())
            fmt::print("stopped at step {} of {}: nothing was trained\n", resumed.step,
                       rank_.config().steps);
    }

    void tell_ready(const storage::TrainingState& resumed) const {
        if (!first()) return;
        warn_of_no_change(rank_.config(), resumed);
        const int64_t steps = rank_.config().steps;
        log_info("ready", "set up in {:.1f} s; {}", progress_.seconds(),
                 steps < resumed.step
                     ? fmt::format("{} steps are fewer than the checkpoint's {}, so there is "
                                   "nothing to train",
                                   steps, resumed.step)
                     : counted(steps - resumed.step, "step") + " to go");
    }

    // Runs TRAINER. On an error, ends the process here, because the destructor of TRAINER would
    // wait for its lanes.
    runtime::TrainResult run_or_leave(runtime::Trainer& trainer) {
        try {
            return trainer.run();
        } catch (...) {
            // The last heartbeat may be a second old, and may name a different step than the error
            // message.
            reporter_.heartbeat(trainer.heartbeat());
            leave(std::current_exception());
        }
    }

    void finish(const runtime::TrainResult& result, const job::WrittenWeights& written) {
        if (!first()) return;
        if (const auto memory =
                rank_.room().compare(rank_.setup(), rank_.place(), rank_.steps().largest(), result))
            reporter_.run_result(job::result_json(*memory));
        std::string text = summary_of(result, rank_.config());
        if (written.any) {
            const bool is_adapter = rank_.config().lora.on();
            text +=
                written_text(output(), is_adapter, written.step == result.steps ? 0 : written.step);
        }
        fmt::print("{}\n", text);
        std::fflush(stdout);
    }

    TrainArguments arguments_;
    launch::WorkerEnvironment environment_;
    runtime::Reporter& reporter_;
    RankProgress progress_;
    job::TrainingRank rank_;
    std::optional<job::JobVerifier> verifier_;
    // The destructor of archive_ waits for the thread that hashes the archive. archive_ is a
    // member, not a local variable, so that a rank that fails reports its error and leaves before
    // the destructor runs.
    std::optional<job::IdentifiedArchive> archive_;
};

}  // namespace

int train_main(int argc, char** argv) {
    bool help = false;
    TrainArguments arguments = parse(argc, argv, help);
    if (help) return 0;
    job::return_freed_memory();
    const launch::WorkerEnvironment environment = begin_rank();
    runtime::hide_other_gpus(environment);
    if (!log_enabled(LogLevel::kDetail) && log_enabled(LogLevel::kInfo))
        set_log_level(LogLevel::kDetail);  // the log files contain details
    // In a job, the launcher marks each line with rank and host. Without a launcher, the rank marks
    // its lines here.
    if (environment.control_fd < 0)
        set_log_speaker(fmt::format("r{}@{}", environment.rank, launch::machine_name()));
    const int threads = at::get_num_threads();
    arguments.pinned = job::pin_to_processors(environment, threads);
    std::unique_ptr<runtime::Reporter> reporter =
        environment.control_fd >= 0
            ? runtime::make_control_reporter(environment.control_fd)
            : runtime::make_file_reporter(environment.rank == 0 ? arguments.rank.output : "");
    arguments.rank.threads = threads;
    TrainRole role(std::move(arguments), environment, *reporter);
    try {
        role.run();
        return 0;
    } catch (...) {
        role.leave(std::current_exception());
    }
}

}  // namespace dslaunch::worker
