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
#include "graph/lower/target_count.h"
#include "graph/segment/compute_context.h"
#include "job/files/archive_hash.h"
#include "job/predict/host_admission.h"
#include "job/process/process_resources.h"
#include "job/run/describe_run.h"
#include "job/run/job_saving.h"
#include "job/run/job_state.h"
#include "job/run/job_steps.h"
#include "job/run/link_choice.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/lower_options.h"
#include "job/setup/set_up_job.h"
#include "job/setup/written_parameters.h"
#include "job/verify/job_verifier.h"
#include "kernels/flat_optimizer.h"
#include "launch/machine/machine_name.h"
#include "plan/step/recompute_groups.h"
#include "runtime/comm/host/hang_limit.h"
#include "runtime/compute/rank_device.h"
#include "runtime/save/save_weights.h"
#include "runtime/train/reporter.h"
#include "runtime/train/trainer.h"
#include "storage/export/weight_export.h"
#include "storage/huggingface/model_folder.h"
#include "worker/processors.h"
#include "worker/rank_process.h"
#include "worker/roles.h"
#include "worker/train/rank_progress.h"
#include "worker/train/text_samples.h"
#include "worker/train/train_messages.h"

namespace dslaunch::worker {

namespace {

// Longer than a rank can live after it lost its launcher (launch::kLeaseMax).
constexpr std::chrono::milliseconds kClaimWaitMax{150'000};

struct TrainArguments {
    job::JobArguments job;
    std::string output;
    std::string resume;  // "auto" or a folder, see ResumeRequest::from
    bool new_data = false;
    std::string expected_sha256;
    double timeout_s = std::chrono::duration<double>(runtime::kHangLimit).count();
    std::string scratch;  // verify: a folder for values that do not fit in memory
    bool verify = false;  // compare each step with one rank that computes the whole
    int threads = 1;      // threads of this rank
    std::string pinned;   // text that names the threads' processors
};

TrainArguments parse(int argc, char** argv, bool& help) {
    TrainArguments arguments;
    CommandLine app({.does = "Trains one rank of a job; dslaunch starts it."}, "dsworker train");
    app.add("MODEL", arguments.job.model_path, "an archive (.pt2, .pt) or a Hugging Face folder")
        .required();
    app.add("--config FILE", arguments.job.config_path, "ds_config.json");
    app.add("--set KEY=VALUE", arguments.job.overrides, "override one value; repeatable");
    app.add("--begun KEY=VALUE", arguments.job.begun,
            "a value of the resumed run, used if nothing else sets it; repeatable");
    app.add("--output DIR", arguments.output, "folder for weights, metrics and logs");
    app.add("--resume DIR", arguments.resume, "auto, or a folder of checkpoints");
    app.add("--new-data", arguments.new_data, "resume with other data");
    app.add("--expect-sha256 HASH", arguments.expected_sha256, "refuse any other archive");
    app.add("--verify", arguments.verify, "compare each step with one rank alone");
    app.add("--scratch DIR", arguments.scratch, "where verify keeps what does not fit in memory");
    app.add("--trust-model", arguments.job.trust_model, kTrustModelHelp);
    app.add("--segments N", arguments.job.segments,
            "number of segments to cut the model into; 0: by whole layers");
    app.add("--timeout SECONDS", arguments.timeout_s, "seconds that a rank waits for another one")
        .range(0.1, 86'400.0);
    help = !app.parse({argv + 1, argv + argc});
    return arguments;
}

int64_t trainable_numel(const graph::Model& model) {
    int64_t numel = 0;
    for (const graph::ModelParameter& parameter : model.parameters())
        if (parameter.tensor.requires_grad()) numel += parameter.tensor.numel();
    return numel;
}

// One rank of a training job: sets up its parts, meets the other ranks, and takes the steps.
class TrainRole {
  public:
    TrainRole(TrainArguments arguments, launch::WorkerEnvironment environment,
              runtime::Reporter& reporter)
        : arguments_(std::move(arguments)),
          environment_(std::move(environment)),
          reporter_(reporter),
          place_(runtime::Topology::of_rank(environment_.node_sizes, environment_.rank)),
          progress_(reporter, environment_.rank == 0) {}

    void run() {
        if (first())
            log_detail("ranks", "{} on {}, {} each, {}; {} kernels", environment_.world_size,
                       counted(place_.node_count(), "host"), counted(arguments_.threads, "thread"),
                       arguments_.pinned, kernels::isa_name(kernels::isa_in_use()));
        progress_.start();
        archive_.emplace(
            job::identify_archive(arguments_.job.model_path, arguments_.expected_sha256, first()));
        set_up();
        job::require_unchanged(*archive_, arguments_.job.model_path);
        // All ranks measure at the same time, because the ranks of a host slow each other down, as
        // they do in training.
        std::optional<job::JobRates> rates;
        if (setup_.config().trace_step > 0)
            rates = setup_.on_gpu ? job::rates_on_gpu(setup_, gpu_.rates, {})
                                  : job::measure_job_rates(setup_, {arguments_.threads, 0});
        states_.emplace(setup_, environment_, gpu_, time_limit());
        meet();
        saving_.emplace(
            setup_, comms_,
            job::SavingOptions{arguments_.output, arguments_.resume, environment_.restart_count > 0,
                               arguments_.job.model_path, describe_owner(), arguments_.new_data,
                               claim_wait_max()});
        progress_.set_up("reading the checkpoint");
        saving_->resume();
        train(std::move(rates));
    }

    // Ends the process because of ERROR: releases the ranks that wait for this one, and reports the
    // reason.
    [[noreturn]] void leave(const std::exception_ptr& error) {
        const RankFailure failure = failure_of(error);
        comms_.poison(fmt::format("rank {} failed: {}", environment_.rank, failure.message));
        if (gpu_.backend) gpu_.backend->abort();
        end_rank(reporter_, failure, "train");
    }

  private:
    [[nodiscard]] bool first() const { return environment_.rank == 0; }

    void set_up() {
        arguments_.job.begins = [this](std::string_view what) { progress_.set_up(what); };
        arguments_.job.open_device = [this](const config::RunConfig& config) {
            gpu_ = runtime::open_rank_device(config, environment_, runtime::own_device_plugin());
            if (gpu_.backend && first()) log_info("train", "GPU: {}", gpu_.backend->describe());
            return gpu_.device;
        };
        setup_ = job::set_up_job(arguments_.job, place_);
        if (setup_.own_ranks().local_rank == 0) job::check_host_plans(setup_, place_);
        const bool saves = !arguments_.output.empty();
        if (place_.local_rank == 0 || setup_.on_gpu)
            room_.check_host(setup_, place_, saves, gpu_.backend.get());
        if (first() && saves)
            runtime::check_room_for_output(
                setup_.whole_model(),
                {arguments_.output, trainable_numel(setup_.whole_model()),
                 std::ssize(zero::ShardOptimizer::state_names(setup_.config().optimizer))});
        if (first())
            job::describe_run(setup_,
                              {arguments_.job.model_path, arguments_.output, room_.text(),
                               room_.brief(), arguments_.threads, decoder::kByteVocabMax},
                              environment_, reporter_);
    }

    [[nodiscard]] std::string describe_owner() const {
        return fmt::format("job {}, attempt {}, rank {} on host {}, pid {}",
                           environment_.job_id.empty() ? "without a name" : environment_.job_id,
                           environment_.restart_count, environment_.rank, launch::machine_name(),
                           ::getpid());
    }
    [[nodiscard]] std::chrono::milliseconds time_limit() const {
        return std::chrono::milliseconds(static_cast<int64_t>(arguments_.timeout_s * 1e3));
    }
    // Returns the longest time to wait for the right to save. The other ranks wait meanwhile, and
    // must not take the wait for a hang.
    [[nodiscard]] std::chrono::milliseconds claim_wait_max() const {
        return std::min(kClaimWaitMax, std::chrono::milliseconds(
                                           static_cast<int64_t>(arguments_.timeout_s * 800)));
    }

    // Connects this rank to all ranks of the job.
    void meet() {
        progress_.set_up("waiting for the other ranks");
        runtime::ArenaLayout arena(setup_.own_ranks().local_world_size());
        states_->add_slices(arena);
        comms_.open(environment_, setup_, std::move(arena), time_limit());
        job::compare_plans(*comms_.own().collectives, setup_.plan);
        room_.agree(comms_.job());
        job::choose_wire(setup_, comms_.of_job());
    }

    // Returns the processors of this rank's host and the number of ranks that share them; if this
    // rank has processors to itself, that number is 1. All simulated hosts are this machine.
    [[nodiscard]] ProcessorShare processor_share() const {
        const bool shares = arguments_.pinned.starts_with("not");
        const bool pretended =
            place_.node_count() > 1 && std::getenv(launch::kHostVariable) == nullptr;
        const int ranks = pretended ? environment_.world_size : environment_.local_world_size;
        return {processors_allowed(), shares ? ranks : 1, arguments_.threads};
    }

    // Returns true if any rank was asked to end. All ranks must call it.
    [[nodiscard]] bool all_leave() const {
        double asked[1] = {reporter_.asked_to_end() ? 1.0 : 0.0};
        comms_.job().sum_ordered(asked);
        return asked[0] > 0;
    }

    // Returns true if the ranks' buffers take different values while they train.
    [[nodiscard]] bool own_buffers(const runtime::ModelBuffers& buffers) const {
        return buffers.drift() && environment_.world_size > 1 &&
               !setup_.config().broadcast_buffers && !setup_.config().average_buffers;
    }

    // Trains and writes the weights. RATES: the rates of this rank, set if a step is traced.
    void train(std::optional<job::JobRates> rates) {
        runtime::ModelBuffers buffers(*setup_.model, *comms_.own().collectives);
        if (saving_->saved() == nullptr) buffers.broadcast();
        if (first() && own_buffers(buffers)) log_info("train", "{}", job::own_buffers_text(setup_));
        progress_.set_up("placing the weights");
        const std::unique_ptr<runtime::ParameterState> state =
            states_->make(comms_, saving_->saved(), arguments_.threads);
        if (first()) states_->describe_offload();
        const storage::TrainingState resumed = saving_->training();
        saving_->begin(*state, buffers, own_buffers(buffers));
        steps_.emplace(setup_, place_,
                       job::JobSteps::Parts{*comms_.own().collectives, buffers, *state},
                       job::StepsOptions{arguments_.output, std::move(rates)});
        if (arguments_.verify) {
            progress_.set_up("reading the model to compare with");
            watch(*state);
        }
        job::keep_freed_memory();
        take_steps(*state, buffers, resumed);
    }

    // Compares each step with one rank that computes all alone.
    void watch(runtime::ParameterState& state) {
        require_verifiable(setup_);
        verifier_.emplace(job::VerifierParts{&setup_, &comms_, &state, &*steps_,
                                             arguments_.job.model_path, arguments_.scratch});
        state.set_witness(&*verifier_);
    }

    // Does the rest of the job, including the weights, while heartbeats report to the launcher what
    // this rank is doing.
    void take_steps(runtime::ParameterState& state, runtime::ModelBuffers& buffers,
                    const storage::TrainingState& resumed) {
        const config::RunConfig& config = setup_.config();
        runtime::BatchLoader loader(
            setup_.data->train, {config.batch, setup_.data_rank(), config.seed, config.data.shuffle,
                                 resumed.step, resumed.samples_seen});
        runtime::SegmentRunner segments = make_segments(loader);
        std::optional<runtime::Evaluator> evaluator;
        if (setup_.data->eval)
            evaluator.emplace(evaluator_parts(state, buffers), *setup_.data->eval);
        if (evaluator && job::writes_parameters(setup_))
            job::check_held_out_writes(setup_, evaluator->prepare().lowered());
        if (!verifier_ && all_leave()) return leave_untrained(resumed);
        std::optional<TextSamples> samples;
        if (config.samples.on())
            samples.emplace(TextSampleParts{&config, arguments_.job.model_path, arguments_.output,
                                            resumed.step, &comms_.job(), &reporter_},
                            writer_parts(state, buffers));
        runtime::TrainerParts parts = trainer_parts();
        if (samples) parts.after_evaluation = [&](int64_t step) { samples->write(step); };
        parts.steps.segments = &segments;
        parts.steps.state = &state;
        parts.account = &state;
        parts.loader = &loader;
        parts.evaluator = evaluator ? &*evaluator : nullptr;
        parts.resumed = resumed;
        const graph::ComputeContext context(true, graph::scalar_type_of(config.precision.compute),
                                            gpu_.device.type());
        const graph::TensorGroupScope scope(comms_.tensor());
        runtime::Trainer trainer(std::move(parts));
        const std::jthread heartbeats = progress_.follow(trainer);
        saving_->begin_steps();
        tell_ready(resumed);
        std::optional<BusyNeighbours> neighbours;
        if (place_.local_rank == 0) neighbours.emplace("train", processor_share());
        const runtime::DiskTraffic before = state.disk_traffic().value_or(runtime::DiskTraffic{});
        const runtime::TrainResult result = run_or_leave(trainer);
        states_->report_offload(comms_.job(), state, steps_->placement_text(), before, result);
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
        require_updates(result);
        progress_.begin("writing the weights");
        const job::WrittenWeights written = saving_->write_weights(state, buffers, result.steps);
        if (gpu_.backend) gpu_.backend->leave();
        finish(result, written);
    }

    void leave_untrained(const storage::TrainingState& resumed) const {
        if (gpu_.backend) gpu_.backend->leave();
        if (first())
            fmt::print("stopped at step {} of {}: nothing was trained\n", resumed.step,
                       setup_.config().steps);
    }

    void tell_ready(const storage::TrainingState& resumed) const {
        if (!first()) return;
        warn_of_no_change(setup_.config(), resumed);
        log_info("ready", "set up in {:.1f} s; {} to go", progress_.seconds(),
                 counted(setup_.config().steps - resumed.step, "step"));
    }

    // Runs TRAINER. On an error, ends the process here, because the destructor of TRAINER would
    // wait for its lanes.
    runtime::TrainResult run_or_leave(runtime::Trainer& trainer) {
        try {
            return trainer.run();
        } catch (...) {
            // The newest heartbeat may be a second old, and may name another step than the error
            // does.
            reporter_.heartbeat(trainer.heartbeat());
            leave(std::current_exception());
        }
    }

    [[nodiscard]] runtime::SegmentRunner make_segments(runtime::BatchLoader& loader) const {
        const config::RunConfig& config = setup_.config();
        const plan::StepPlanOptions& plan = setup_.plan_options;
        return {
            *setup_.segmented,
            setup_.info,
            plan::make_recompute_groups(setup_.info, plan.recompute_groups, plan.stage_work.parts),
            [&](int64_t step, int64_t micro_step) { return loader.take(step, micro_step); },
            {config.seed, config.batch.accumulation_steps, setup_.data_rank(),
             static_cast<int>(config.batch.data_parallel_size), gpu_.device,
             /*read_losses_late=*/!gpu_.device.is_cpu(),
             /*stop_on_nonfinite_loss=*/!config.precision.skip_nonfinite_steps, plan.stage_work,
             setup_.sharing.position_ranks()}};
    }

    [[nodiscard]] runtime::EvaluatorParts evaluator_parts(runtime::ParameterState& state,
                                                          runtime::ModelBuffers& buffers) {
        runtime::EvaluatorParts parts;
        parts.model = setup_.model.get();
        parts.lowering = job::lower_options(setup_.config(), gpu_.device, /*training=*/false);
        parts.config = &setup_.config();
        parts.buffers = &buffers;
        parts.state = &state;
        parts.writable = &state;
        parts.is_written_here = job::written_here(setup_);
        parts.device = gpu_.device;
        parts.rank = setup_.data_rank();
        parts.counts = setup_.sharing.place.index == 0;
        parts.leaves = [this] { return all_leave(); };
        parts.stages = {comms_.stages(), job::stage_of_parts(setup_),
                        job::stages_of_parameters(setup_), job::stages_of_buffers(setup_),
                        arguments_.job.segments};
        parts.segmented = std::move(setup_.sharing.held_out);
        return parts;
    }

    [[nodiscard]] runtime::TokenWriterParts writer_parts(runtime::ParameterState& state,
                                                         runtime::ModelBuffers& buffers) {
        runtime::TokenWriterParts parts;
        parts.model = setup_.model.get();
        parts.lowering = job::lower_options(setup_.config(), gpu_.device, /*training=*/false);
        parts.config = &setup_.config();
        parts.buffers = &buffers;
        parts.state = &state;
        parts.collectives = &comms_.job();
        parts.device = gpu_.device;
        parts.leaves = [this] { return all_leave(); };
        return parts;
    }

    // Returns true if micro batches may differ in the number of targets that count.
    [[nodiscard]] bool targets_vary() const {
        const graph::TargetCount* const targets = setup_.segmented->lowered().targets.get();
        const DType tokens = setup_.config().data.token_dtype.value_or(DType::kU16);
        const bool has_sign = tokens == DType::kI32 || tokens == DType::kI64;
        return targets != nullptr &&
               targets->varies(setup_.data->train.tokens_per_sample() > 0 && !has_sign);
    }

    // Returns the peak to which mfu is relative. All ranks call it at the same time.
    [[nodiscard]] runtime::DevicePeak peak() const {
        const config::RunConfig& config = setup_.config();
        runtime::DevicePeak peak{gpu_.peak_tflops, "name"};
        if (config.peak_tflops > 0)
            peak = {config.peak_tflops, "stated"};
        else if (gpu_.device.is_cpu())
            peak = runtime::measure_cpu_peak(config.precision.compute);
        if (first() && peak.tflops > 0)
            log_detail("train", "mfu is relative to {:.4g} TFLOP/s, {}", peak.tflops,
                       peak.source == "name"     ? "the peak of GPUs of this name"
                       : peak.source == "stated" ? "dslaunch.peak_tflops"
                                                 : "measured on this processor");
        return peak;
    }

    // Returns the trainer's parts that live longer than the training.
    [[nodiscard]] runtime::TrainerParts trainer_parts() {
        const plan::StageWork& work = setup_.plan_options.stage_work;
        runtime::TrainerParts parts;
        parts.config = &setup_.config();
        parts.steps.info = &setup_.info;
        parts.steps.plan = &setup_.plan;
        parts.steps.collectives = &comms_.job();
        parts.tells_planned = setup_.on_gpu || comms_.own().collectives->topology().local_rank == 0;
        parts.steps.groups = comms_.groups();
        if (states_->collectives_of_gpus() != nullptr)
            parts.steps.groups.push_back(states_->collectives_of_gpus());
        parts.steps.device = gpu_.backend.get();
        parts.steps.time_limit = time_limit();
        if (comms_.stages() != nullptr)
            parts.steps.stage = {comms_.stages(), comms_.far(), setup_.model_info.forward_flops(),
                                 work.parts, plan::stages_of_buckets(setup_.layout, work.ties)};
        parts.reporter = &reporter_;
        parts.checkpointer = saving_->checkpointer();
        parts.between = &*steps_;
        if (verifier_) parts.between = &*verifier_;
        parts.save_by = runtime::last_save_time(setup_.config().save.time_limit_s, start_);
        parts.tokens_per_sample = setup_.data->train.tokens_read();
        parts.targets_vary = targets_vary();
        parts.peak = peak();
        if (first() && setup_.config().flops_profiler.enabled)
            parts.profiled = setup_.segmented.get();
        return parts;
    }

    void finish(const runtime::TrainResult& result, const job::WrittenWeights& written) {
        if (!first()) return;
        room_.compare(setup_, place_, steps_->largest(), result);
        std::string text = summary_of(result, setup_.config());
        if (written.any) {
            const bool is_adapter = setup_.config().lora.on();
            // With the config next to the weights, the folder is a Hugging Face folder too.
            if (!is_adapter && storage::model_folder_of(arguments_.job.model_path))
                storage::copy_model_config(arguments_.job.model_path, arguments_.output);
            text += written_text(arguments_.output, is_adapter,
                                 written.step == result.steps ? 0 : written.step);
        }
        fmt::print("{}\n", text);
        std::fflush(stdout);
    }

    std::chrono::system_clock::time_point start_ = std::chrono::system_clock::now();
    TrainArguments arguments_;
    launch::WorkerEnvironment environment_;
    runtime::Reporter& reporter_;
    runtime::Topology place_;
    RankProgress progress_;
    runtime::RankDevice gpu_;  // destroyed after everything that is stored on it
    job::JobSetup setup_;
    job::JobRoom room_;
    std::optional<job::JobState> states_;
    job::RankComms comms_;
    std::optional<job::JobSaving> saving_;
    std::optional<job::JobSteps> steps_;
    std::optional<job::JobVerifier> verifier_;
    // A member, so that a rank that fails reports and leaves before it waits for the thread that
    // hashes the archive.
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
    // In a job the launcher marks each line with rank and host; without a launcher this is done
    // here.
    if (environment.control_fd < 0)
        set_log_speaker(fmt::format("r{}@{}", environment.rank, launch::machine_name()));
    const int threads = at::get_num_threads();
    arguments.pinned = job::pin_to_processors(environment, threads);
    std::unique_ptr<runtime::Reporter> reporter =
        environment.control_fd >= 0
            ? runtime::make_control_reporter(environment.control_fd)
            : runtime::make_file_reporter(environment.rank == 0 ? arguments.output : "");
    arguments.threads = threads;
    TrainRole role(std::move(arguments), environment, *reporter);
    try {
        role.run();
        return 0;
    } catch (...) {
        role.leave(std::current_exception());
    }
}

}  // namespace dslaunch::worker
