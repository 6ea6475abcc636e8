// dsworker train MODEL: one rank of a training job. Reads its place from the environment, builds
// the parts of a step, trains, and as rank 0 writes the trained weights.
#include <ATen/Parallel.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/busy_neighbours.h"
#include "base/text.h"
#include "decoder/codec/text_codec.h"
#include "graph/lower/precision.h"
#include "graph/lower/target_count.h"
#include "graph/segment/compute_context.h"
#include "job/files/archive_hash.h"
#include "job/predict/host_admission.h"
#include "job/process/process_resources.h"
#include "job/run/job_saving.h"
#include "job/run/job_state.h"
#include "job/run/job_steps.h"
#include "job/run/link_choice.h"
#include "job/setup/describe_run.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/lower_options.h"
#include "job/setup/set_up_job.h"
#include "job/setup/written_parameters.h"
#include "job/verify/job_verifier.h"
#include "kernels/flat_optimizer.h"
#include "launch/machine/machine_name.h"
#include "launch/process/timing.h"
#include "plan/step/recompute_groups.h"
#include "runtime/comm/host/hang_limit.h"
#include "runtime/compute/rank_device.h"
#include "runtime/save/save_weights.h"
#include "runtime/schedules/learning_rate.h"
#include "runtime/train/reporter.h"
#include "runtime/train/step_line.h"
#include "runtime/train/trainer.h"
#include "storage/adapter/adapter_config.h"
#include "storage/export/weight_export.h"
#include "storage/huggingface/model_folder.h"
#include "worker/processors.h"
#include "worker/rank_process.h"
#include "worker/roles.h"

namespace dslaunch::worker {

namespace {

// Longer than a rank lives that was cut off from its launcher (launch::kLeaseMax).
constexpr std::chrono::milliseconds kClaimWaitMax{150'000};

// Schedules are looked at so far ahead for a learning rate above 0.
constexpr int64_t kUpdatesMax = 1'000'000;

struct TrainArguments {
    job::JobArguments job;
    std::string output;
    std::string resume;  // see ResumeRequest::from
    bool new_data = false;
    std::string expected_sha256;
    double timeout_s = std::chrono::duration<double>(runtime::kHangLimit).count();
    std::string scratch;  // of verify: a folder for values that do not fit in memory
    bool verify = false;  // each step is compared with one rank that computes all alone
    int threads = 1;      // threads of this rank
    std::string pinned;   // processors of the threads, in words
};

TrainArguments parse(int argc, char** argv, bool& help) {
    TrainArguments arguments;
    CommandLine app({.does = "Trains one rank of a job; dslaunch starts it."}, "dsworker train");
    app.add("MODEL", arguments.job.model_path, "an archive (.pt2, .pt) or a Hugging Face folder")
        .required();
    app.add("--config FILE", arguments.job.config_path, "ds_config.json");
    app.add("--set KEY=VALUE", arguments.job.overrides, "override one value; repeatable");
    app.add("--begun KEY=VALUE", arguments.job.begun,
            "a value of the run that is resumed, where nothing names another; repeatable");
    app.add("--output DIR", arguments.output, "folder for weights, metrics and logs");
    app.add("--resume DIR", arguments.resume, "auto, or a folder of checkpoints");
    app.add("--new-data", arguments.new_data, "resume with other data");
    app.add("--expect-sha256 HASH", arguments.expected_sha256, "refuse any other archive");
    app.add("--verify", arguments.verify, "compare each step with one rank alone");
    app.add("--scratch DIR", arguments.scratch, "where verify keeps what does not fit in memory");
    app.add("--trust-model", arguments.job.trust_model, kTrustModelHelp);
    app.add("--segments N", arguments.job.segments,
            "pieces to cut the model into, 0: by whole layers");
    app.add("--timeout SECONDS", arguments.timeout_s, "seconds that a rank waits for another one")
        .range(0.1, 86'400.0);
    help = !app.parse({argv + 1, argv + argc});
    return arguments;
}

std::string duration_text(std::chrono::duration<double> time) {
    constexpr int64_t kMinute = 60;
    constexpr int64_t kHour = 60 * kMinute;
    const auto seconds = static_cast<int64_t>(std::round(time.count()));
    if (time.count() < 10) return fmt::format("{:.1f} s", time.count());
    if (seconds < kMinute) return fmt::format("{} s", seconds);
    if (seconds < kHour) return fmt::format("{} min {} s", seconds / kMinute, seconds % kMinute);
    return fmt::format("{} h {} min", seconds / kHour, seconds % kHour / kMinute);
}

int64_t trainable_numel(const graph::Model& model) {
    int64_t numel = 0;
    for (const graph::ModelParameter& parameter : model.parameters())
        if (parameter.tensor.requires_grad()) numel += parameter.tensor.numel();
    return numel;
}

class TrainRole {
  public:
    TrainRole(TrainArguments arguments, launch::WorkerEnvironment environment,
              runtime::Reporter& reporter)
        : arguments_(std::move(arguments)),
          environment_(std::move(environment)),
          reporter_(reporter),
          place_(runtime::Topology::of_rank(environment_.node_sizes, environment_.rank)) {}

    void run() {
        if (first())
            log_detail("ranks", "{} on {}, {} each, {}; {} kernels", environment_.world_size,
                       counted(place_.node_count(), "host"), counted(arguments_.threads, "thread"),
                       arguments_.pinned, kernels::isa_name(kernels::isa_in_use()));
        heartbeats_ = runtime::send_heartbeats(reporter_, launch::kHeartbeatInterval, [this] {
            launch::Heartbeat heartbeat{0, 1, "setting up"};
            if (first()) heartbeat.progress = activity_.text();
            return heartbeat;
        });
        archive_ =
            job::identify_archive(arguments_.job.model_path, arguments_.expected_sha256, first());
        set_up();
        job::require_unchanged(archive_, arguments_.job.model_path);
        // All ranks measure together, for the ranks of a host slow each other as in training.
        if (setup_.config().trace_step > 0)
            rates_ = setup_.on_gpu ? job::rates_on_gpu(setup_, gpu_.rates, {})
                                   : job::measure_job_rates(setup_, {arguments_.threads, 0});
        states_.emplace(setup_, environment_, gpu_, time_limit());
        meet();
        saving_.emplace(
            setup_, comms_,
            job::SavingOptions{arguments_.output, arguments_.resume, environment_.restart_count > 0,
                               arguments_.job.model_path, describe_owner(), arguments_.new_data,
                               claim_wait_max()});
        begin("reading the checkpoint");
        saving_->resume();
        train();
    }

    // Ends the process for ERROR: frees the ranks that wait for this one, and tells why.
    [[noreturn]] void leave(const std::exception_ptr& error) {
        const RankFailure failure = failure_of(error);
        comms_.poison(fmt::format("rank {} failed: {}", environment_.rank, failure.message));
        if (gpu_.backend) gpu_.backend->abort();
        end_rank(reporter_, failure, "train");
    }

  private:
    [[nodiscard]] bool first() const { return environment_.rank == 0; }

    // Notes that WHAT begins, before the first step.
    void begin(std::string_view what) { activity_.begin(fmt::format("setting up: {}", what)); }

    void set_up() {
        arguments_.job.begins = [this](std::string_view what) { begin(what); };
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
    // Returns the longest wait: the other ranks wait meanwhile, and must not take it for a hang.
    [[nodiscard]] std::chrono::milliseconds claim_wait_max() const {
        return std::min(kClaimWaitMax, std::chrono::milliseconds(
                                           static_cast<int64_t>(arguments_.timeout_s * 800)));
    }

    // Connects to all ranks of the job.
    void meet() {
        begin("waiting for the other ranks");
        runtime::ArenaLayout arena(setup_.own_ranks().local_world_size());
        states_->add_slices(arena);
        comms_.open(environment_, setup_, std::move(arena), time_limit());
        job::compare_plans(*comms_.own().collectives, setup_.plan);
        room_.agree(comms_.job());
        job::choose_wire(setup_, comms_.of_job());
    }

    // Returns the processors of this rank's host and the ranks that use them, or this rank's own
    // processors if it has some. All pretended hosts are this machine.
    [[nodiscard]] ProcessorShare processor_share() const {
        const bool shares = arguments_.pinned.starts_with("not");
        const bool pretended =
            place_.node_count() > 1 && std::getenv(launch::kHostVariable) == nullptr;
        const int ranks = pretended ? environment_.world_size : environment_.local_world_size;
        return {processors_allowed(), shares ? ranks : 1, arguments_.threads};
    }

    // Returns true if any rank was asked to end. All ranks call it.
    [[nodiscard]] bool all_leave() const {
        double asked[1] = {reporter_.asked_to_end() ? 1.0 : 0.0};
        comms_.job().sum_ordered(asked);
        return asked[0] > 0;
    }

    // Returns true if each rank's buffers change on their own while it trains.
    [[nodiscard]] bool own_buffers(const runtime::ModelBuffers& buffers) const {
        return buffers.drift() && environment_.world_size > 1 &&
               !setup_.config().broadcast_buffers && !setup_.config().average_buffers;
    }

    void train() {
        runtime::ModelBuffers buffers(*setup_.model, *comms_.own().collectives);
        if (saving_->saved() == nullptr) buffers.broadcast();
        if (first() && own_buffers(buffers)) log_info("train", "{}", job::own_buffers_text(setup_));
        begin("placing the weights");
        const std::unique_ptr<runtime::ParameterState> state =
            states_->make(comms_, saving_->saved(), arguments_.threads);
        if (first()) states_->describe_offload();
        const storage::TrainingState resumed = saving_->training();
        saving_->begin(*state, buffers, own_buffers(buffers));
        steps_.emplace(setup_, place_,
                       job::JobSteps::Parts{*comms_.own().collectives, buffers, *state},
                       job::StepsOptions{arguments_.output, std::move(rates_)});
        if (arguments_.verify) {
            begin("reading the model to compare with");
            watch(*state);
        }
        job::keep_freed_memory();
        take_steps(*state, buffers, resumed);
    }

    void watch(runtime::ParameterState& state) {
        if (setup_.on_gpu)
            fail(ExitCode::kUsage,
                 "verify looks at values in the host's memory: give --device cpu; a GPU's plan "
                 "has the same instructions");
        if (!setup_.config().precision.master_copies)
            fail(ExitCode::kConfig,
                 "bf16.bf16_master_weights_and_grads: weights without fp32 copies are rounded by "
                 "random numbers, which verify cannot predict: verify without it");
        if (setup_.config().states != config::MomentFormat::kFp32)
            fail(ExitCode::kConfig,
                 "dslaunch.optimizer.states: moments in fewer bits than fp32 are rounded by drawn "
                 "numbers, which verify cannot predict: verify with fp32");
        if (setup_.config().lagging.on)
            fail(ExitCode::kConfig,
                 "zero_optimization.zenflow: verify compares each update with the exact one of its "
                 "step, and here most of them lag: verify without it");
        if (setup_.plan_options.reduce_packing() != WirePacking::kNone)
            fail(
                ExitCode::kConfig,
                "verify does not predict gradients that hosts round before they send them: set "
                "communication_data_type (with dslaunch.sequence.size "
                "seq_parallel_communication_data_type) to fp32, zero_quantized_gradients to false, "
                "and with torch_autocast lower_precision_safe_modules to []");
        if (setup_.config().optimizer.compresses())
            fail(ExitCode::kUsage,
                 "verify compares each step with one rank that computes all alone, and {} gives "
                 "other results on every number of hosts: verify the job with AdamW",
                 zero::ShardOptimizer::name(setup_.config().optimizer));
        verifier_.emplace(job::VerifierParts{&setup_, &comms_, &state, &*steps_,
                                             arguments_.job.model_path, arguments_.scratch});
        state.set_witness(&*verifier_);
    }

    // Does the rest of the job, the weights included, while heartbeats tell the launcher where this
    // rank is.
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
        runtime::TrainerParts parts = trainer_parts();
        parts.segments = &segments;
        parts.state = &state;
        parts.account = &state;
        parts.loader = &loader;
        parts.evaluator = evaluator ? &*evaluator : nullptr;
        parts.resumed = resumed;
        const graph::ComputeContext context(true, graph::scalar_type_of(config.precision.compute),
                                            gpu_.device.type());
        const graph::TensorGroupScope scope(comms_.tensor());
        runtime::Trainer trainer(std::move(parts));
        activity_.begin({});
        heartbeats_ = {};
        const std::jthread heartbeats =
            runtime::send_heartbeats(reporter_, launch::kHeartbeatInterval, [&] {
                launch::Heartbeat heartbeat = trainer.heartbeat();
                if (const std::string other = activity_.text(); first() && !other.empty())
                    heartbeat.progress = other;
                return heartbeat;
            });
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
        require_updates(result);
        activity_.begin("writing the weights");
        const bool wrote_weights = saving_->write_weights(state, buffers);
        if (gpu_.backend) gpu_.backend->leave();
        finish(result, wrote_weights);
    }

    void leave_untrained(const storage::TrainingState& resumed) const {
        if (gpu_.backend) gpu_.backend->leave();
        if (first())
            fmt::print("stopped at step {} of {}: nothing was trained\n", resumed.step,
                       setup_.config().steps);
    }

    void tell_ready(const storage::TrainingState& resumed) const {
        if (!first()) return;
        warn_of_no_change(resumed);
        log_info("ready", "set up in {:.1f} s; {} to go",
                 to_milliseconds(clock_.now() - set_up_began_) / 1e3,
                 counted(setup_.config().steps - resumed.step, "step"));
    }

    // Warns if the learning rate is 0 in all steps to go, as in a warm-up that is longer than the
    // run.
    void warn_of_no_change(const storage::TrainingState& resumed) const {
        const config::RunConfig& config = setup_.config();
        const auto moving = runtime::first_moving_update(config.scheduler, config.optimizer.lr,
                                                         {resumed.updates, kUpdatesMax});
        const int64_t steps = config.steps - resumed.step;
        if (steps <= 0 || (moving && *moving < resumed.updates + steps)) return;
        log_warn("train",
                 "the learning rate is 0 in each of the {} to go: no weight will change; {}",
                 counted(steps, "step"),
                 moving ? fmt::format("it is above 0 from step {} on: train more steps, or leave "
                                      "the schedule out (--set scheduler=null)",
                                      resumed.step + *moving - resumed.updates + 1)
                        : "give one (--lr)");
    }

    // An error ends the process here: the destructor of TRAINER would wait for its lanes.
    runtime::TrainResult run_or_leave(runtime::Trainer& trainer) {
        try {
            return trainer.run();
        } catch (...) {
            // The newest heartbeat may be a second old, and say another step than the error does.
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

    // Returns true if one micro batch may have fewer targets that count than another.
    [[nodiscard]] bool targets_vary() const {
        const graph::TargetCount* const targets = setup_.segmented->lowered().targets.get();
        const DType tokens = setup_.config().data.token_dtype.value_or(DType::kU16);
        const bool has_sign = tokens == DType::kI32 || tokens == DType::kI64;
        return targets != nullptr &&
               targets->varies(setup_.data->train.tokens_per_sample() > 0 && !has_sign);
    }

    // Returns the parts that outlive the training.
    [[nodiscard]] runtime::TrainerParts trainer_parts() {
        const plan::StageWork& work = setup_.plan_options.stage_work;
        runtime::TrainerParts parts;
        parts.config = &setup_.config();
        parts.info = &setup_.info;
        parts.plan = &setup_.plan;
        parts.collectives = &comms_.job();
        parts.tells_planned = setup_.on_gpu || comms_.own().collectives->topology().local_rank == 0;
        parts.groups = comms_.groups();
        if (states_->collectives_of_gpus() != nullptr)
            parts.groups.push_back(states_->collectives_of_gpus());
        parts.device = gpu_.backend.get();
        parts.time_limit = time_limit();
        if (comms_.stages() != nullptr)
            parts.stage = {comms_.stages(), comms_.far(), setup_.model_info.forward_flops(),
                           work.parts, plan::stages_of_buckets(setup_.layout, work.ties)};
        parts.reporter = &reporter_;
        parts.checkpointer = saving_->checkpointer();
        parts.between = &*steps_;
        if (verifier_) parts.between = &*verifier_;
        parts.save_by = runtime::last_save_time(setup_.config().save.time_limit_s, start_);
        parts.tokens_per_sample = setup_.data->train.tokens_read();
        parts.targets_vary = targets_vary();
        parts.peak_tflops = gpu_.peak_tflops;
        return parts;
    }

    // Logs what the steps sent to other hosts beside the plan.
    static void log_links(const runtime::TrainResult& result) {
        const std::string sent =
            runtime::links_text(result.links, std::max<int64_t>(1, result.new_steps));
        if (!sent.empty()) log_info("links", "sent by this host in a step: {}", sent);
        if (!result.comms.empty()) log_info("comms", "operations of rank 0\n{}", result.comms);
    }

    // Refuses a run that changed nothing, unless it was asked to end and may be resumed. The
    // checkpoint of the last step, with the loss scale so far, is there.
    void require_updates(const runtime::TrainResult& result) const {
        const bool none_ever = result.steps > 0 && result.updates == 0;
        const bool none_now = result.new_steps > 0 && result.new_updates == 0;
        if (result.asked_to_end || (!none_ever && !none_now)) return;
        fail(
            ExitCode::kDiverged,
            "{} steps were done and none changed the model: the gradients of each were not finite, "
            "so it was skipped (each skip says the parameter and the loss scale). Where only the "
            "loss scale was too large, train more steps or lower fp16.initial_scale_power; else "
            "lower optimizer.params.lr, or use bf16; no weights are written",
            none_ever ? result.steps : result.new_steps);
    }

    [[nodiscard]] std::string what_was_done(const runtime::TrainResult& result) const {
        if (result.asked_to_end && result.steps < setup_.config().steps)
            return fmt::format("stopped at step {} of {}", result.steps, setup_.config().steps);
        return result.new_steps == 0
                   ? fmt::format("at step {0} of {0} already: nothing was trained", result.steps)
                   : fmt::format("trained {}", counted(result.steps, "step"));
    }

    // Tells the best held-out loss where it is not the last one.
    static std::string best_text(const runtime::TrainResult& result) {
        if (!result.best_eval || result.best_eval->step == result.steps) return "";
        const auto& [step, loss] = *result.best_eval;
        if (result.eval_loss) return fmt::format(" (best {:.4f} at step {})", loss, step);
        return step == 0 ? "" : fmt::format(", best held-out loss {:.4f} at step {}", loss, step);
    }

    void finish(const runtime::TrainResult& result, bool wrote_weights) {
        if (!first()) return;
        room_.compare(setup_, place_, steps_->largest(), result);
        std::string text = what_was_done(result);
        if (result.updates < result.steps)
            text += fmt::format(" ({} of them skipped)", result.steps - result.updates);
        text += fmt::format(", loss {:.4f}", result.loss);
        if (result.eval_loss) text += fmt::format(", held-out loss {:.4f}", *result.eval_loss);
        text += best_text(result);
        if (result.new_steps > 0) text += ", in " + duration_text(result.time);
        if (wrote_weights && setup_.config().lora.on()) {
            text += fmt::format(", adapter in {}/{}", on_host(arguments_.output),
                                storage::kAdapterFolder);
        } else if (wrote_weights) {
            // The folder is then one of Hugging Face, too.
            if (storage::model_folder_of(arguments_.job.model_path))
                storage::copy_model_config(arguments_.job.model_path, arguments_.output);
            text += fmt::format(", weights in {0}/model.safetensors and {0}/model.pt",
                                on_host(arguments_.output));
        }
        fmt::print("{}\n", text);
        std::fflush(stdout);
    }

    // Returns PATH with the name of its host, if the job has hosts.
    [[nodiscard]] static std::string on_host(const std::string& path) {
        const char* const host = std::getenv(launch::kHostVariable);
        return host == nullptr ? path : fmt::format("{}:{}", printable(host), path);
    }

    std::chrono::system_clock::time_point start_ = std::chrono::system_clock::now();
    TrainArguments arguments_;
    launch::WorkerEnvironment environment_;
    runtime::Reporter& reporter_;
    SystemClock clock_;
    TimePoint set_up_began_ = clock_.now();
    runtime::Activity activity_{clock_};
    runtime::Topology place_;
    runtime::RankDevice gpu_;  // destroyed after everything that lies on it
    job::JobSetup setup_;
    job::JobRoom room_;
    std::optional<job::JobRates> rates_;  // present if a step is traced
    std::optional<job::JobState> states_;
    job::RankComms comms_;
    std::optional<job::JobSaving> saving_;
    std::optional<job::JobSteps> steps_;
    std::optional<job::JobVerifier> verifier_;
    job::IdentifiedArchive archive_;
    std::jthread heartbeats_;  // before there is a trainer
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
        set_log_level(LogLevel::kDetail);  // log files have details
    // The launcher marks each line with rank and host.
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
