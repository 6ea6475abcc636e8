#include "engine/engine_run.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/plugin.h"
#include "base/path.h"
#include "base/text.h"
#include "config/read/value.h"
#include "graph/archive/scalar_types.h"
#include "graph/segment/compute_context.h"
#include "job/files/archive_hash.h"
#include "job/process/process_resources.h"
#include "job/setup/written_parameters.h"
#include "launch/machine/machine_name.h"
#include "runtime/eval/evaluator.h"
#include "runtime/train/trainer.h"

namespace dslaunch::engine {

namespace {

// Converts RANKS. Throws Error{kUsage} if its numbers contradict each other, and Error{kSetup} if
// the ranks of this host have no memory to share.
launch::WorkerEnvironment environment_of(const Ranks& ranks) {
    const auto host = static_cast<size_t>(ranks.host_rank);
    int sum = 0, before = 0;
    bool is_valid = ranks.host_rank >= 0 && host < ranks.ranks_of_host.size();
    for (size_t i = 0; i < ranks.ranks_of_host.size(); ++i) {
        is_valid = is_valid && ranks.ranks_of_host[i] >= 1;
        if (i < host) before += ranks.ranks_of_host[i];
        sum += ranks.ranks_of_host[i];
    }
    if (!is_valid || sum != ranks.world_size || before + ranks.local_rank != ranks.rank ||
        ranks.local_rank < 0 || ranks.local_rank >= ranks.ranks_of_host[host])
        fail(ExitCode::kUsage,
             "Ranks: rank {} of {}, local rank {} on host {} of {}, with {} ranks on the hosts: "
             "these numbers contradict each other",
             ranks.rank, ranks.world_size, ranks.local_rank, ranks.host_rank,
             ranks.ranks_of_host.size(), fmt::join(ranks.ranks_of_host, ","));
    launch::WorkerEnvironment environment;
    environment.rank = ranks.rank;
    environment.world_size = ranks.world_size;
    environment.local_rank = ranks.local_rank;
    environment.local_world_size = ranks.ranks_of_host[host];
    environment.node_rank = ranks.host_rank;
    environment.node_sizes = ranks.ranks_of_host;
    environment.master_address = ranks.master_address;
    environment.master_port = ranks.master_port;
    environment.devices = ranks.devices;
    environment.restart_count = ranks.restarts;
    // The only rank of a host allocates its own memory.
    environment.arena_fd = environment.local_world_size > 1 ? ranks.memory_fd : -1;
    if (environment.local_world_size > 1 && environment.arena_fd < 0)
        fail(ExitCode::kSetup,
             "the {} ranks of this host have no shared memory (DSL_ARENA_FD is not set): start the "
             "program with dslaunch, which provides this memory, or start one rank on each host",
             environment.local_world_size);
    return environment;
}

// Returns the folder of the library that this code is in.
std::string own_folder() {
    Dl_info info{};
    if (::dladdr(reinterpret_cast<const void*>(&own_folder), &info) == 0) return ".";
    return folder_of(info.dli_fname);
}

void set_log(EngineLog log, const launch::WorkerEnvironment& environment) {
    switch (log) {
        case EngineLog::kErrors:
            set_log_level(LogLevel::kError);
            break;
        case EngineLog::kWarnings:
            set_log_level(LogLevel::kWarn);
            break;
        case EngineLog::kInfo:
            set_log_level(LogLevel::kInfo);
            break;
        case EngineLog::kDetail:
            set_log_level(LogLevel::kDetail);
            break;
    }
    // If dslaunch started this program, it puts the rank in front of each line.
    const bool is_marked = std::getenv(launch::kLaunchIdVariable) != nullptr;
    set_log_speaker(is_marked ? ""
                              : fmt::format("r{}@{}", environment.rank, launch::machine_name()));
}

// Sets the number of LibTorch's threads for the calling thread. OpenMP keeps this number for each
// calling thread separately, and a different number would change the order of sums.
struct ThreadCount {
    explicit ThreadCount(int wanted) {
        if (at::get_num_threads() != wanted) at::set_num_threads(wanted);
    }
};

// Restores the state of LibTorch's default generator when it is destroyed. Steps seed this
// generator, but the program uses it too.
class KeptGenerator {
  public:
    KeptGenerator() : before_(locked([](at::Generator& all) { return all.get_state(); })) {}
    KeptGenerator(const KeptGenerator&) = delete;
    KeptGenerator& operator=(const KeptGenerator&) = delete;
    ~KeptGenerator() {
        locked([this](at::Generator& all) {
            all.set_state(before_);
            return before_;
        });
    }

  private:
    template <typename Use>
    static at::Tensor locked(const Use& use) {
        at::Generator all = at::detail::getDefaultCPUGenerator();
        const std::lock_guard lock(all.mutex());
        return use(all);
    }
    at::Tensor before_;
};

// Sets the state of the thread for a call, whatever modes of LibTorch the program has set.
struct CallScope {
    explicit CallScope(job::TrainingRank& rank)
        : threads(rank.options().threads),
          context(true, graph::scalar_type_of(rank.config().precision.compute),
                  rank.gpu().device.type()),
          group(rank.comms().tensor()) {}
    ThreadCount threads;
    KeptGenerator generator;
    c10::InferenceMode inference{false};
    graph::ComputeContext context;
    graph::TensorGroupScope group;
};

// Returns the name of the function of Engine that makes CALL.
template <typename Call>
const char* call_name(Call call) {
    switch (call) {
        case Call::kTrain:
            return "train_batch";
        case Call::kEvaluate:
            return "evaluate";
        case Call::kSave:
            return "save_checkpoint";
        case Call::kBeginSave:
            return "save_checkpoint(false)";
        case Call::kExport:
            return "export_weights";
        case Call::kClose:
            return "close";
    }
    return "another version's call";
}

FedPlace place_of(const job::TrainingRank& rank) {
    const config::BatchConfig& batch = rank.config().batch;
    return {batch.micro_rows, batch.data_parallel_size};
}

runtime::EvaluatorParts evaluator_parts(job::TrainingRank& rank) {
    runtime::EvaluatorParts parts = rank.evaluator_parts();
    parts.leaves = {};  // nothing ends an evaluation early
    return parts;
}

}  // namespace

// The parts that exist while the rank takes steps; they refer to each other.
struct EngineRun::Running {
    explicit Running(EngineRun& run)
        : segments(run.rank_.make_segments([&run](int64_t, int64_t micro_step) {
              return run.micro_batches_.at(static_cast<size_t>(micro_step));
          })),
          evaluator(evaluator_parts(run.rank_), *run.rank_.setup().data->eval),
          trainer(trainer_parts(run.rank_)) {
        if (job::writes_parameters(run.rank_.setup()))
            job::check_held_out_writes(run.rank_.setup(), evaluator.prepare().lowered());
    }

    runtime::TrainerParts trainer_parts(job::TrainingRank& rank) {
        runtime::TrainerParts parts = rank.trainer_parts();
        parts.steps.segments = &segments;
        parts.evaluator = &evaluator;
        return parts;
    }

    runtime::SegmentRunner segments;
    std::vector<at::Tensor> held_out;  // the rows of the evaluation under way
    runtime::Evaluator evaluator;
    runtime::Trainer trainer;
};

EngineRun::EngineRun(const EngineOptions& options, const Ranks& ranks,
                     std::shared_ptr<const std::atomic<bool>> asked)
    : reporter_(ranks.rank == 0 ? options.output : std::string(), std::move(asked)),
      rank_(training_options(options, ranks), environment_of(ranks), reporter_) {
    const KeptGenerator generator;
    const c10::InferenceMode inference(false);
    try {
        set_up();
    } catch (const std::exception& error) {
        rank_.poison(fmt::format("rank {} failed: {}", rank(), error.what()));
        throw;
    } catch (...) {
        rank_.poison(fmt::format("rank {} failed with an exception of an unknown type", rank()));
        throw;
    }
    if (options.keeps_memory) job::keep_freed_memory();
}

EngineRun::~EngineRun() = default;

job::TrainingOptions EngineRun::training_options(const EngineOptions& options, const Ranks& ranks) {
    const launch::WorkerEnvironment environment = environment_of(ranks);
    set_log(options.log, environment);
    runtime::hide_other_gpus(environment);
    job::TrainingOptions training;
    training.job.model_path = options.model;
    training.job.config_path = options.config;
    training.job.overrides = options.set;
    training.job.trust_model = options.trust_model;
    training.job.fed_data = [this, example = options.example](
                                const runtime::DataRequest& request) -> runtime::DataSets {
        form_.emplace(request, example);
        const auto samples = std::make_shared<const FedSamples>(
            *form_, form_->take("EngineOptions::example", example), FedPlace{});
        const runtime::DataSource source(samples, 0, samples->sample_count());
        return {source, source};
    };
    training.output = options.output;
    training.resume = options.resume;
    training.begins_if_new = options.resume == "auto";
    training.timeout_s = std::chrono::duration<double>(options.time_limit).count();
    job::set_rank_threads(environment.local_world_size, options.threads);
    training.threads = at::get_num_threads();
    training.device_plugin = plugin_of(own_folder(), "libdsl_cuda.so");
    return training;
}

void EngineRun::set_up() {
    rank_.set_up();
    require_schedule();
    tell_unused();
    const plan::ModelInfo& info = rank_.setup().model_info;
    if (info.loss_classes > 0 && rank_.config().loss.takes_classes() &&
        rank_.setup().sharing.place.size == 1)
        rank_.setup().data->train.check_indices(form_->inputs().back().argument,
                                                {info.loss_classes, -100, "class"});
    rank_.reserve();
    rank_.meet();
    compare_options();
    compare_settings();
    compare_models();
    rank_.resume();
    rank_.place_weights({});
    const CallScope scope(rank_);
    running_ = std::make_unique<Running>(*this);
    running_->trainer.begin();
}

// Throws Error{kConfig} if the learning rate schedule has an end but no number of steps.
void EngineRun::require_schedule() const {
    const config::SchedulerConfig& scheduler = rank_.config().scheduler;
    const bool ends = scheduler.kind == config::SchedulerKind::kWarmupDecayLr ||
                      scheduler.kind == config::SchedulerKind::kWarmupCosineLr ||
                      scheduler.kind == config::SchedulerKind::kLinear ||
                      scheduler.kind == config::SchedulerKind::kCosine ||
                      scheduler.kind == config::SchedulerKind::kWsd;
    if (ends && scheduler.total_num_steps == 0)
        fail(ExitCode::kConfig,
             "scheduler.params.total_num_steps: is not set, and an engine cannot know how many "
             "steps the program takes: set this key or dslaunch.steps to the number of steps");
}

// Compares the options of all ranks. Ranks that resumed from different places, or saved to
// different folders, would wait for each other.
void EngineRun::compare_options() const {
    const job::TrainingOptions& own = rank_.options();
    for (const auto& [name, value] :
         {std::pair{"output", &own.output}, std::pair{"resume", &own.resume}}) {
        const std::vector<std::string> all = rank_.comms().job().all_gather(*value);
        for (size_t other = 0; other < all.size(); ++other)
            if (all[other] != all[0])
                fail(ExitCode::kUsage,
                     "EngineOptions::{} is \"{}\" on rank 0, but \"{}\" on rank {}: give all ranks "
                     "the same",
                     name, printable(all[0]), printable(all[other]), other);
    }
}

// Compares the values of the config that the user set: if one rank had a different learning rate,
// its share of the model would train differently. Leaves out derived values, because they may
// depend on the host, and the folders for offload, because each host may have its own.
void EngineRun::compare_settings() const {
    if (is_alone()) return;
    std::string own;
    for (const config::ResolvedValue& value : rank_.setup().resolved.values)
        if (value.origin != "default" && !value.origin.starts_with("derived") &&
            !value.path.ends_with("nvme_path"))
            own += fmt::format("{} {}\n", value.path, config::to_json(value.value));
    const std::vector<std::string> all = rank_.comms().job().all_gather(own);
    for (size_t other = 0; other < all.size(); ++other) {
        if (all[other] == all[0]) continue;
        const auto lines = split(all[0], '\n'), theirs = split(all[other], '\n');
        const auto [left, right] = std::ranges::mismatch(lines, theirs);
        const auto text = [](const auto& at, const auto& end) {
            return at == end || at->empty() ? std::string("nothing more") : printable(*at);
        };
        fail(ExitCode::kDiverged,
             "rank {} has `{}` in its config, but rank 0 has `{}`: give all ranks the same config "
             "and the same EngineOptions::set",
             other, text(right, theirs.end()), text(left, lines.end()));
    }
}

// Compares the contents of the model on each host with rank 0's model, and the model's names on the
// ranks of one host with each other.
void EngineRun::compare_models() const {
    if (is_alone()) return;
    const runtime::Topology& place = rank_.place();
    const std::string& model = rank_.options().job.model_path;
    const bool reads = place.local_rank == 0 && place.node_count() > 1;
    const auto names = rank_.comms().job().all_gather(model);
    const auto marks = rank_.comms().job().all_gather(reads ? job::content_mark(model) : "");
    int node = 0;
    for (int other = 0; other < place.world_size(); ++other) {
        while (other >= place.first_rank(node) + place.node_sizes[node]) ++node;
        const int first = place.first_rank(node);
        if (names[other] != names[first])
            fail(ExitCode::kDiverged,
                 "EngineOptions::model is \"{}\" on rank {}, but \"{}\" on rank {} of the same "
                 "host: give all ranks the same",
                 printable(names[first]), first, printable(names[other]), other);
        if (!marks[other].empty() && marks[other] != marks[0])
            fail(ExitCode::kDiverged,
                 "{}: on the host of rank {}, this is another file than \"{}\" on rank 0's host: "
                 "copy the same model to all hosts",
                 printable(names[other]), other, printable(names[0]));
    }
}

// Warns of settings that have no effect here, because only dslaunch's own loop reads them.
void EngineRun::tell_unused() const {
    std::vector<std::string> names;
    for (const config::ResolvedValue& value : rank_.setup().resolved.values) {
        const bool is_unused =
            value.path == "dslaunch.data.train" || value.path == "dslaunch.data.eval" ||
            value.path == "dslaunch.epochs" || value.path == "dslaunch.eval_interval" ||
            value.path == "dslaunch.save.interval" || value.path == "dslaunch.save.best" ||
            value.path == "dslaunch.save.on_error" || value.path == "dslaunch.patience" ||
            value.path.starts_with("dslaunch.samples.") || value.path.starts_with("tensorboard.") ||
            value.path.starts_with("csv_monitor.") || value.path.starts_with("wandb.") ||
            value.path.starts_with("comet.");
        if (is_unused && !value.origin.starts_with("derived") && !value.origin.empty() &&
            value.origin != "default")
            names.push_back(value.path);
    }
    if (names.empty() || !rank_.first()) return;
    log_warn("engine",
             "{}: only dslaunch's own loop reads {}, and this program has a loop of its own",
             join(names, ", "), names.size() == 1 ? "it" : "them");
}

void EngineRun::take_rows(const std::vector<at::Tensor>& inputs) {
    constexpr const char* kWhere = "train_batch";
    const std::vector<at::Tensor> rows = form_->take(kWhere, inputs);
    const int64_t wanted = batch().micro_rows * batch().accumulation_steps;
    if (rows[0].size(0) != wanted)
        fail(ExitCode::kInput,
             "{}: got {} rows, but a step takes {} on each rank: {} x {} (micro batches x rows)",
             kWhere, rows[0].size(0), wanted, batch().accumulation_steps, batch().micro_rows);
    micro_batches_.assign(static_cast<size_t>(batch().accumulation_steps), {});
    for (int64_t m = 0; m < batch().accumulation_steps; ++m)
        for (const at::Tensor& input : rows)
            micro_batches_[static_cast<size_t>(m)].emplace_back(
                input.narrow(0, m * batch().micro_rows, batch().micro_rows));
}

// Compares CALL and ROWS with the calls of all other ranks. Throws Error{kDiverged} that names a
// rank with a different call, for example the only rank that saves. Otherwise ranks would hang.
void EngineRun::agree(Call call, int64_t rows) const {
    if (is_alone()) return;
    struct Made {
        Call call;
        int64_t step, rows;
    };
    const Made own{call, steps(), rows};
    const std::vector<Made> all = runtime::gather_values(rank_.comms().job(), own);
    for (size_t other = 0; other < all.size(); ++other) {
        const Made& theirs = all[other];
        if (theirs.call != call)
            fail(ExitCode::kDiverged,
                 "rank {} calls {} after step {}, but rank {} calls {}: all ranks must make the "
                 "same calls in the same order, including calls that save",
                 rank(), call_name(call), steps(), other, call_name(theirs.call));
        if (theirs.rows != rows)
            fail(ExitCode::kDiverged,
                 "{}: rank {} has {} rows, but rank {} has {}: all ranks must give the same number "
                 "of rows",
                 call_name(call), rank(), rows, other, theirs.rows);
    }
}

StepResult EngineRun::step() {
    const CallScope scope(rank_);
    agree(Call::kTrain);
    const runtime::StepFacts facts = running_->trainer.take_step();
    micro_batches_.clear();
    const runtime::StepRates rates = running_->trainer.rates();
    return {steps(),          facts.loss,          facts.skipped, rates.lr,
            facts.loss_scale, rates.gradient_norm, facts.end};
}

void EngineRun::take_held_out(const std::vector<at::Tensor>& inputs) {
    running_->held_out = form_->take("evaluate", inputs);
    const int64_t rows = running_->held_out[0].size(0);
    const FedPlace place = place_of(rank_);
    if (place.ranks > 1 && rows % place.micro_rows != 0)
        fail(ExitCode::kInput,
             "evaluate: got {} rows, but with {} data ranks the number of rows on each rank must "
             "be a multiple of {} (the rows of a micro batch): leave out the last rows, or "
             "evaluate with one rank",
             rows, place.ranks, place.micro_rows);
}

double EngineRun::evaluate() {
    const CallScope scope(rank_);
    agree(Call::kEvaluate, running_->held_out[0].size(0));
    const auto samples =
        std::make_shared<const FedSamples>(*form_, std::move(running_->held_out), place_of(rank_));
    running_->evaluator.use({samples, 0, samples->sample_count()});
    return running_->trainer.evaluate();
}

void EngineRun::require_output(const char* does) const {
    if (rank_.options().output.empty())
        fail(ExitCode::kUsage, "{}: EngineOptions::output names no folder", does);
}

void EngineRun::save(bool waits) {
    const CallScope scope(rank_);
    agree(waits ? Call::kSave : Call::kBeginSave);
    running_->trainer.save(waits);
}

void EngineRun::export_weights() {
    const CallScope scope(rank_);
    agree(Call::kExport);
    const runtime::TrainResult result = running_->trainer.end();
    static_cast<void>(rank_.write_weights(result));
    rank_.leave_groups();
}

void EngineRun::close() {
    const CallScope scope(rank_);
    agree(Call::kClose);
    static_cast<void>(running_->trainer.end());
    rank_.leave_groups();
}

int64_t EngineRun::steps() const {
    return running_->trainer.steps();
}

int64_t EngineRun::rows_seen() const {
    const storage::TrainingState& resumed = rank_.resumed();
    return resumed.earlier_samples + resumed.samples_seen +
           (steps() - resumed.step) * batch().train_rows;
}

std::string EngineRun::config_json() const {
    return config::resolved_json(rank_.setup().resolved);
}

}  // namespace dslaunch::engine
