// dsworker train MODEL.pt: one rank of a training job. Reads its place from the environment, builds
// what a step needs, trains, and writes the trained weights as rank 0.
#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/memory_shortage.h"
#include "base/text.h"
#include "base/text/wire.h"
#include "graph/lower/device_rewrite.h"
#include "graph/lower/precision.h"
#include "graph/segment/compute_context.h"
#include "job/predict/adaptive_placement.h"
#include "job/predict/host_admission.h"
#include "job/predict/job_forecast.h"
#include "job/process/job_clock.h"
#include "job/process/leftovers.h"
#include "job/process/pinning.h"
#include "job/process/process_memory.h"
#include "job/setup/archive_hash.h"
#include "job/setup/describe_run.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_tensor.h"
#include "job/setup/rank_comms.h"
#include "job/setup/resume.h"
#include "job/setup/set_up_job.h"
#include "kernels/flat_optimizer.h"
#include "launch/machine/machine_name.h"
#include "launch/plan/worker_environment.h"
#include "launch/process/timing.h"
#include "plan/step/recompute_groups.h"
#include "plan/step/stage_model.h"
#include "runtime/compute/model_buffers.h"
#include "runtime/compute/rank_device.h"
#include "runtime/data/batch_loader.h"
#include "runtime/save/final_weights.h"
#include "runtime/save/save_weights.h"
#include "runtime/save/saved_state.h"
#include "runtime/train/evaluator.h"
#include "runtime/train/heartbeat.h"
#include "runtime/train/reporter.h"
#include "runtime/train/trainer.h"
#include "storage/disk/disk_facts.h"
#include "storage/files/atomic_file.h"
#include "worker/roles.h"
#include "zero/device_state.h"
#include "zero/zero_state.h"

namespace dslaunch::worker {

namespace {

struct TrainArguments {
    job::JobArguments job;
    std::string output;
    std::string resume;  // as ResumeRequest::from
    std::string expected_sha256;
    double timeout_s = 300;
    int threads = 1;     // of this rank
    std::string pinned;  // where they run, in words
};

TrainArguments parse(int argc, char** argv, bool& help) {
    TrainArguments arguments;
    CLI::App app("Trains one rank of a job; dslaunch starts it.", "train");
    app.add_option("model", arguments.job.model_path, "TorchScript archive")->required();
    app.add_option("--config", arguments.job.config_path, "ds_config.json");
    app.add_option("--set", arguments.job.overrides, "override one key: a.b=c")
        ->allow_extra_args(false);
    app.add_option("--output", arguments.output, "folder for weights, metrics and logs");
    app.add_option("--resume", arguments.resume, "auto, or a folder of checkpoints");
    app.add_option("--expect-sha256", arguments.expected_sha256, "refuse any other archive");
    app.add_option("--segments", arguments.job.segments,
                   "pieces to cut the model into, 0: by whole layers");
    app.add_option("--timeout", arguments.timeout_s, "seconds that a rank waits for another one")
        ->check(CLI::Range(0.1, 86'400.0));
    help = !parse_command_line(app, {argv + 1, argv + argc});
    return arguments;
}

int64_t trainable_numel(const graph::Model& model) {
    int64_t numel = 0;
    for (const graph::ModelParameter& parameter : model.parameters())
        if (parameter.tensor.requires_grad()) numel += parameter.tensor.numel();
    return numel;
}

std::string beside_this_program(const std::string& name) {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
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
        const std::string_view kernels = kernels::isa_name(kernels::isa_in_use());
        if (first())
            log_info("train", "{} threads a rank, {}; optimizer kernels: {}", arguments_.threads,
                     arguments_.pinned, kernels);
        std::optional<runtime::HeartbeatSender> heartbeats;
        heartbeats.emplace(reporter_, launch::kHeartbeatInterval, [] {
            return launch::Heartbeat{0, 1, "setting up"};
        });
        identify_archive();
        arguments_.job.open_device = [this](const config::RunConfig& config) {
            gpu_ = runtime::open_rank_device(config, environment_,
                                             beside_this_program("libdsl_cuda.so"));
            if (gpu_.backend && first()) log_info("train", "GPU: {}", gpu_.backend->describe());
            return gpu_.device;
        };
        setup_ = job::set_up_job(arguments_.job, place_);
        if (own_ranks().local_rank == 0) job::check_host_plans(setup_, place_);
        if (place_.local_rank == 0) check_room_for_job();
        if (first() && !arguments_.output.empty())
            runtime::check_room_for_output(
                setup_.whole_model(),
                {arguments_.output, trainable_numel(setup_.whole_model()),
                 std::ssize(zero::ShardOptimizer::state_names(setup_.config().optimizer))});
        if (first()) job::describe_run(setup_, environment_, reporter_);
        // By all ranks, for each feels the others of its host as it will while training.
        if (setup_.config().trace_step > 0 && !setup_.on_gpu)
            rates_ = job::measure_job_rates(setup_, {arguments_.threads, 0});
        runtime::ArenaLayout arena(own_ranks().local_world_size());
        zero::ZeroSlices slices;
        shards_.emplace(setup_.layout, setup_.partition.get(), setup_.plan_options.stage,
                        own_ranks(), setup_.plan_options.offload.parameters,
                        setup_.plan_options.shard_on_host);
        open_offload();
        const DType dtype = setup_.config().precision.compute;
        if (!gpu_.backend) slices = zero::ZeroState::add_slices(zero_place(), dtype, arena);
        comms_.open(environment_, setup_, std::move(arena),
                    std::chrono::milliseconds(static_cast<int64_t>(arguments_.timeout_s * 1e3)));
        tensor_ = {comms_.tensor(), setup_.sharing.plan.get(), &setup_.whole_model()};
        job::compare_plans(*comms_.own().collectives, setup_.plan);
        find_largest_estimate();
        if (saves() && !via_rank0()) job::require_shared_folder(*files_, job(), arguments_.output);
        resume();
        heartbeats.reset();
        train(slices);
    }

    // Frees ranks that wait for this one.
    void poison(const std::string& why) {
        comms_.poison(why);
        if (gpu_.backend) gpu_.backend->abort();
    }

  private:
    [[nodiscard]] bool first() const { return environment_.rank == 0; }
    // The ranks that train the same parameters: of this one's stage in a pipeline, else all.
    [[nodiscard]] const runtime::Topology& own_ranks() const { return setup_.place.of_stage; }
    // Of those of its stage, tensor ranks included.
    [[nodiscard]] bool first_of_own() const {
        return own_ranks().rank() == 0 && setup_.sharing.place.index == 0;
    }
    // Where its rows stand among those of all ranks.
    [[nodiscard]] int data_rank() const {
        return own_ranks().rank() / setup_.sharing.position_ranks();
    }
    // Of all ranks.
    [[nodiscard]] runtime::Collectives& job() const { return comms_.job(); }

    // What the host's ranks are about to take, and whether it is there.
    void check_room_for_job() {
        if (setup_.on_gpu) return;
        admission_ = job::admit_host(setup_, place_, {place_.local_world_size(), saves()});
        const job::HostAdmission& host = *admission_;
        rank_estimate_ = host.need.of_rank();
        if (first()) log_info("admission", "\n{}", plan::admission_table(host.need, host.verdicts));
        plan::require_admission(host.need, host.verdicts, host.advice);
    }

    // Hosts have other stages of a pipeline.
    void find_largest_estimate() {
        for (const std::string& words :
             comms_.job().all_gather(WireWriter().i64(rank_estimate_.value).bytes()))
            rank_estimate_ =
                std::max(rank_estimate_, Bytes{WireReader(words, "estimate of a rank").i64()});
    }

    // An archive is a program: one that the user did not expect must not run at all.
    void identify_archive() {
        const std::string& expected = arguments_.expected_sha256;
        if (!expected.empty()) {
            job::check_archive_hash(arguments_.job.model_path, expected);
            if (first())
                log_info("train", "model {} sha256={}", arguments_.job.model_path, expected);
        } else if (first()) {
            hash_log_ = job::log_archive_hash(arguments_.job.model_path);
        }
    }

    // Before anything large is taken: a disk without room is refused here.
    void open_offload() {
        const Bytes bytes =
            zero::StateStore::bytes_on_disk(setup_.plan, setup_.plan_options.chunk_format());
        if (bytes.value == 0) return;
        const config::OffloadConfig& config = setup_.config().offload;
        const std::string job =
            environment_.job_id.empty() ? fmt::format("alone-{}", ::getpid()) : environment_.job_id;
        offload_.emplace(config, storage::SwapPlace{config.nvme_paths, job, environment_.rank},
                         bytes);
        job::name_leftovers(offload_->paths());
    }

    [[nodiscard]] bool saves() const { return !arguments_.output.empty(); }
    // With one host there is nothing to bring to it.
    [[nodiscard]] bool via_rank0() const {
        return saves() && setup_.config().save.via_rank0 && place_.node_count() > 1;
    }

    void resume() {
        reader_ = job::find_resume(
            *files_, job(),
            {arguments_.resume, arguments_.output, environment_.restart_count > 0, via_rank0()});
        if (reader_ == nullptr) return;
        saved_.emplace(*reader_, setup_.whole_model(),
                       zero::ShardOptimizer::state_names(setup_.config().optimizer));
        if (setup_.sharing.splits()) saved_->read_shares(*setup_.sharing.plan, tensor_.part());
        const std::vector<bool> trained = setup_.model_info.trained();
        std::vector<int> untrained;
        for (int i = 0; i < std::ssize(trained); ++i)
            if (!trained[i]) untrained.push_back(i);
        saved_->restore_untrained(untrained, own_ranks().rank(), own_ranks().world_size());
        job::share_untrained(setup_, untrained);
        if (first()) describe_resume();
    }

    void describe_resume() const {
        const storage::Checkpoint& checkpoint = saved_->checkpoint();
        const storage::TrainingState& training = saved_->training();
        log_info("checkpoint",
                 "resuming from {}: step {}, {} samples seen, saved by {} ranks at "
                 "ZeRO stage {}",
                 reader_->folder(), training.step, training.samples_seen, checkpoint.world_size,
                 checkpoint.zero_stage);
        const uint64_t seed = setup_.config().seed;
        if (training.step > 0 && training.seed != seed)
            log_warn("checkpoint",
                     "dslaunch.seed is {} and was {}: data come in another order from here on",
                     seed, training.seed);
        if (checkpoint.states.empty() && training.step > 0)
            log_warn("checkpoint", "it has no optimizer states: they start anew");
    }

    [[nodiscard]] storage::Checkpoint about() const {
        storage::Checkpoint checkpoint;
        const config::RunConfig& config = setup_.config();
        checkpoint.version = DSL_VERSION;
        checkpoint.zero_stage = setup_.plan_options.stage;
        checkpoint.optimizer = zero::ShardOptimizer::name(config.optimizer);
        checkpoint.states = zero::ShardOptimizer::state_names(config.optimizer);
        checkpoint.config_json = config::resolved_json(setup_.resolved);
        return checkpoint;
    }

    void open_checkpointer(runtime::ParameterState& state, runtime::ModelBuffers& buffers,
                           bool own_buffers) {
        const config::SaveConfig& save = setup_.config().save;
        runtime::CheckpointerParts parts;
        parts.tree = files_.get();
        parts.root = arguments_.output + "/checkpoints";
        parts.keep = save.keep;
        parts.goes_on = save.goes_on;
        parts.via_first = via_rank0();
        parts.model = &setup_.whole_model();
        parts.state = &state;
        parts.collectives = &job();
        parts.replicas = own_buffers ? own_ranks().world_size() : 1;
        parts.replica = own_ranks().rank();
        if (setup_.is_divided()) parts.saves_buffer = job::buffers_first_read(setup_);
        parts.of_stage = comms_.stages() != nullptr;
        parts.first_of_stage = first_of_own();
        if (comms_.stages() != nullptr) parts.before_save = [&] { bring_buffers(buffers); };
        parts.about = about();
        parts.told = [](const std::string& line) { log_info("checkpoint", "{}", line); };
        checkpointer_.emplace(std::move(parts));
        if (saved_) checkpointer_->set_saved_step(saved_->training().step);
    }

    // By any rank, all of which are asked.
    [[nodiscard]] bool all_leave() const {
        double asked[1] = {reporter_.asked_to_end() ? 1.0 : 0.0};
        job().sum_ordered(asked);
        return asked[0] > 0;
    }

    // All that outlives the training.
    runtime::TrainerParts make_parts(runtime::ParameterState& state) {
        runtime::TrainerParts parts;
        parts.config = &setup_.config();
        parts.info = &setup_.info;
        parts.plan = &setup_.plan;
        parts.state = &state;
        parts.collectives = &job();
        parts.groups = comms_.groups();
        if (comms_.stages() != nullptr)
            parts.stage = {
                comms_.stages(), comms_.far(), setup_.model_info.forward_flops(),
                setup_.plan_options.stage_work.parts,
                plan::stages_of_buckets(setup_.layout, setup_.plan_options.stage_work.ties)};
        parts.reporter = &reporter_;
        if (checkpointer_) parts.checkpointer = &*checkpointer_;
        if (saved_) parts.resumed = saved_->training();
        if (offload_) parts.disk_traffic = [this] { return offload_->traffic(); };
        if (setup_.plan_options.offload.adaptive) {
            placement_.emplace(setup_, place_, *comms_.own().collectives);
            parts.adapt = [this](const runtime::StepRun& run) {
                return placement_->after_step(run);
            };
        }
        if (!arguments_.output.empty())
            parts.write_trace = [this](const std::string& json) { write_trace(json); };
        if (rates_)
            parts.forecast = [this](const plan::StepPlan& plan) {
                return job::forecast_step(plan, setup_, place_, *rates_);
            };
        parts.tokens_per_sample = setup_.data->train.tokens_per_sample();
        parts.peak_tflops = gpu_.peak_tflops;
        parts.time_is_over = job::job_clock(setup_.config().save.time_limit_s, start_);
        parts.on_lane_start = [](plan::Lane) {};
        return parts;
    }

    void train(const zero::ZeroSlices& slices) {
        const config::RunConfig& config = setup_.config();
        const plan::StepPlanOptions& plan = setup_.plan_options;
        runtime::ModelBuffers buffers(*setup_.model, *comms_.own().collectives);
        if (!saved_) buffers.broadcast();
        if (first() && buffers.drift() && environment_.world_size > 1 && !config.broadcast_buffers)
            log_info("train",
                     "buffers (running averages) are each rank's own while training; rank 0's are "
                     "evaluated and saved");
        const std::unique_ptr<runtime::ParameterState> state = make_state(slices);
        if (offload_ && first()) describe_offload();
        if (saves())
            open_checkpointer(
                *state, buffers,
                buffers.drift() && environment_.world_size > 1 && !config.broadcast_buffers);
        runtime::TrainerParts parts = make_parts(*state);
        saved_.reset();
        reader_.reset();
        if (via_rank0() && place_.node_rank > 0 && place_.local_rank == 0)
            files_->remove_folder(job::resume_copy(arguments_.output));
        job::keep_freed_memory();
        runtime::BatchLoader loader(setup_.data->train,
                                    {config.batch, data_rank(), config.seed, config.data.shuffle,
                                     parts.resumed.step, parts.resumed.samples_seen});
        runtime::SegmentRunner segments(
            *setup_.segmented, setup_.info,
            plan::make_recompute_groups(setup_.info, plan.recompute_groups, plan.stage_work.parts),
            [&](int64_t step, int64_t micro_step) { return loader.take(step, micro_step); },
            {config.seed, config.batch.accumulation_steps, data_rank(),
             static_cast<int>(config.batch.data_parallel_size), gpu_.device,
             /*read_losses_late=*/gpu_.device.is_cuda(),
             /*stop_on_nonfinite_loss=*/!config.precision.skip_nonfinite_steps, plan.stage_work,
             setup_.sharing.position_ranks()});
        std::optional<runtime::Evaluator> evaluator;
        parts.segments = &segments;
        parts.before_step = [&] {
            if (config.broadcast_buffers) buffers.broadcast();
        };
        if (setup_.data->eval) {
            evaluator.emplace(
                *setup_.model, config, *setup_.data->eval, buffers, *state, data_rank(),
                [this] { return all_leave(); },
                runtime::EvalStages{comms_.stages(), job::stage_of_parts(setup_),
                                    job::stages_of_parameters(setup_),
                                    job::stages_of_buffers(setup_), arguments_.job.segments},
                std::move(setup_.sharing.held_out));
            parts.evaluate = [&] {
                runtime::EvalShare share = evaluator->run();
                // What a group works out together counts once.
                if (setup_.sharing.place.index > 0)
                    share.loss_sum = share.weight = share.samples = 0;
                return share;
            };
        }
        parts.data_waited = [&] { return loader.waited(); };
        const graph::ComputeContext context(true, graph::scalar_type_of(config.precision.compute),
                                            gpu_.device.type());
        const graph::TensorGroupScope scope(comms_.tensor());
        runtime::Trainer trainer(std::move(parts));
        const runtime::HeartbeatSender heartbeats(reporter_, launch::kHeartbeatInterval, [&] {
            launch::Heartbeat heartbeat = trainer.heartbeat();
            if (gpu_.backend) heartbeat.lanes.clear();  // a GPU works on its own, unmeasured
            return heartbeat;
        });
        const runtime::DiskTraffic before = disk_traffic();
        const runtime::TrainResult result = trainer.run();
        if (setup_.plan_options.offload.any()) report_offload(*state, before, result);
        if (comms_.stages() != nullptr && saves()) bring_buffers(buffers);
        finish(result, *state);
    }

    void bring_buffers(runtime::ModelBuffers& buffers) {
        buffers.bring_from_stages(job(), setup_.place.stage, job::stages_of_buffers(setup_));
    }

    void write_trace(const std::string& json) const {
        storage::AtomicFile file(arguments_.output + "/trace.json",
                                 Bytes{static_cast<int64_t>(json.size())});
        file.write(json);
        file.commit();
        log_info("train", "{}/trace.json shows step {}: open it at ui.perfetto.dev",
                 arguments_.output, setup_.config().trace_step);
    }

    void describe_offload() const {
        log_info("offload",
                 "{} chunks, {} in memory at once, in {}; {} buffers for gathered parameters, "
                 "{} elements in all",
                 setup_.plan.chunks.turns.size(), setup_.plan.swap_buffers, offload_->describe(),
                 setup_.plan.gather_buffer_numel.size(),
                 std::accumulate(setup_.plan.gather_buffer_numel.begin(),
                                 setup_.plan.gather_buffer_numel.end(), int64_t{0}));
    }

    // None on a rank that has nothing to offload.
    [[nodiscard]] runtime::DiskTraffic disk_traffic() const {
        return offload_ ? offload_->traffic() : runtime::DiskTraffic{};
    }

    // By all ranks: what went to the disks of this host while training, all its ranks together, and
    // what it does to them.
    void report_offload(const runtime::ParameterState& state, const runtime::DiskTraffic& before,
                        const runtime::TrainResult& result) {
        const runtime::DiskTraffic after = disk_traffic();
        const std::vector<std::string> of_ranks =
            job().all_gather(fmt::format("{}", (after.written - before.written).value));
        if (!first()) return;
        for (const std::string& clause : state.account()) log_info("offload", "{}", clause);
        if (placement_) log_info("placement", "{}", placement_->summary());
        Bytes written;
        for (int local = 0; local < place_.local_world_size(); ++local)
            written += Bytes{std::stoll(of_ranks[local])};
        const std::vector<std::string>& folders = setup_.config().offload.nvme_paths;
        const int64_t steps = std::max<int64_t>(1, result.steps);
        const int64_t parts = steps * std::ssize(folders);
        for (const std::string& folder : folders)
            log_info("offload", "{}",
                     storage::wear_text(folder, Bytes{written.value / parts},
                                        std::max(result.time / steps, Duration{1}),
                                        storage::disk_facts(folder).capacity));
        log_info("offload", "{:.1f} ms a step spent on checksums, beside the computing",
                 to_milliseconds(after.checksum_time - before.checksum_time) /
                     static_cast<double>(steps));
    }

    zero::ZeroPlace zero_place() {
        return {&setup_.layout, setup_.partition.get(), &setup_.plan_options, &setup_.plan,
                &*shards_};
    }

    std::unique_ptr<runtime::ParameterState> make_state(const zero::ZeroSlices& slices) {
        const config::RunConfig& config = setup_.config();
        const runtime::JobComm& own = comms_.own();
        if (gpu_.backend)
            return std::make_unique<zero::DeviceState>(
                *setup_.model, setup_.layout, *gpu_.backend, *own.collectives,
                zero::DeviceStateOptions{config.optimizer, config.gradient_clipping,
                                         setup_.plan_options.keeps_reduced(),
                                         graph::has_control_flow(setup_.segmented->lowered()),
                                         std::chrono::minutes(5), saved_ ? &*saved_ : nullptr});
        return std::make_unique<zero::ZeroState>(
            *setup_.model, zero_place(), slices, *own.arena, *own.group, *own.collectives,
            zero::ZeroOptions{
                config.optimizer, config.gradient_clipping, config.precision.compute,
                config.precision.skip_nonfinite_steps, arguments_.threads,
                saved_ ? &*saved_ : nullptr,
                zero::PipelineScope{comms_.is_divided() ? &job() : nullptr,
                                    plan::counted_elsewhere(setup_.plan_options.stage_work.ties,
                                                            setup_.place.stage)},
                setup_.sharing.splits() ? &tensor_ : nullptr},
            offload_ ? &*offload_ : nullptr);
    }

    // The estimate is of the placement that had most in memory.
    void count_kept_chunks() {
        if (!admission_) return;
        setup_.plan_options = placement_->largest();
        rank_estimate_ = job::need_of_host(setup_, place_, admission_->program).of_rank();
    }

    void finish(const runtime::TrainResult& result, runtime::ParameterState& state) {
        const bool writes = runtime::write_final_weights(
            {setup_.model.get(), &setup_.whole_model(), &state, &setup_.layout, comms_.stages(),
             setup_.sharing.splits() ? &tensor_ : nullptr, comms_.own().collectives.get(),
             job::read_earlier(setup_), arguments_.output});
        if (!first()) return;
        if (placement_) count_kept_chunks();
        if (rank_estimate_.value > 0)
            log_info("admission", "{}", plan::estimate_text(rank_estimate_, result.peak_rss));
        std::string text = fmt::format("trained {} steps, loss {:.4f}", result.steps, result.loss);
        if (result.eval_loss) text += fmt::format(", held-out loss {:.4f}", *result.eval_loss);
        if (writes) {
            text += fmt::format(", weights in {0}/model.safetensors and {0}/model.pt",
                                arguments_.output);
        }
        if (result.asked_to_end) text += " (ended early, as asked)";
        fmt::print("{}\n", text);
        std::fflush(stdout);
    }

    std::chrono::system_clock::time_point start_ = std::chrono::system_clock::now();
    TrainArguments arguments_;
    launch::WorkerEnvironment environment_;
    runtime::Reporter& reporter_;
    runtime::Topology place_;
    runtime::RankDevice gpu_;  // ends after everything that lies on it
    job::JobSetup setup_;
    std::optional<job::JobRates> rates_;  // where a step is traced
    std::optional<job::HostAdmission> admission_;
    Bytes rank_estimate_;  // of the rank of all hosts that is said to need most; 0: none is
    std::optional<zero::ShardMap> shards_;
    std::optional<zero::OffloadFile> offload_;
    std::unique_ptr<storage::FileTree> files_ = storage::make_disk_tree();
    job::RankComms comms_;
    graph::TensorRank tensor_;
    std::unique_ptr<storage::CheckpointReader> reader_;
    std::optional<runtime::SavedState> saved_;
    std::optional<runtime::Checkpointer> checkpointer_;
    std::optional<job::AdaptivePlacement> placement_;
    std::jthread hash_log_;
};

}  // namespace

int train_main(int argc, char** argv) {
    bool help = false;
    TrainArguments arguments = parse(argc, argv, help);
    if (help) return 0;
    job::return_freed_memory();
    // c10d warns of every address without a name; its errors reach the user as ours.
    ::setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*overwrite=*/0);
    c10::initLogging();
    const launch::WorkerEnvironment environment = launch::WorkerEnvironment::from_process();
    if (const char* level = std::getenv(launch::kLogLevelVariable))
        set_log_level(parse_log_level(level));
    set_log_speaker(fmt::format("r{}@{}", environment.rank, launch::machine_name()));
    const int threads = at::get_num_threads();
    arguments.pinned = job::pin_to_processors(environment, threads);
    std::unique_ptr<runtime::Reporter> reporter =
        environment.control_fd >= 0
            ? runtime::make_control_reporter(environment.control_fd)
            : runtime::make_file_reporter(environment.rank == 0 ? arguments.output : "");
    arguments.threads = threads;
    TrainRole role(std::move(arguments), environment, *reporter);
    ExitCode code = ExitCode::kInternal;
    std::string message;
    try {
        role.run();
        return 0;
    } catch (const Error& error) {
        code = error.code();
        message = error.what();
    } catch (const std::exception& error) {
        if (is_memory_shortage(error)) code = ExitCode::kSetup;
        message = code == ExitCode::kSetup ? memory_shortage_text(error.what()) : error.what();
    }
    role.poison(fmt::format("rank {} failed: {}", environment.rank, message));
    reporter->failure(code, message);  // before the line, which the launcher need not repeat then
    log_error("train", "{}", message);
    // Lanes may be stuck in what nothing can end: no destructor is waited for.
    std::fflush(nullptr);
    job::remove_leftovers();
    ::_exit(static_cast<int>(code));
}

}  // namespace dslaunch::worker
