#include "worker/text/decoder_session.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "base/bytes.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine/busy_neighbours.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/words.h"
#include "decoder/weights/weight_source.h"
#include "graph/adapter/merged_model.h"
#include "graph/models/transformer.h"
#include "kernels/isa.h"
#include "launch/machine/machine_topology.h"
#include "launch/plan/worker_environment.h"
#include "runtime/comm/host_link.h"
#include "runtime/comm_gloo/job_comm.h"
#include "runtime/comm_gloo/stage_links.h"
#include "storage/gguf/gguf_file.h"
#include "storage/huggingface/named_place.h"

namespace dslaunch::worker {

// The ranks of a job that share a decoder: their mesh and the channels between them. One thread.
class DecoderRanks {
  public:
    // Throws Error{kUsage} under the same conditions as decoder::choose_mesh().
    DecoderRanks(launch::WorkerEnvironment environment, const storage::TransformerConfig& config,
                 int tensor_ranks);

    [[nodiscard]] bool is_alone() const { return environment_.world_size == 1; }
    [[nodiscard]] const decoder::RankMesh& mesh() const { return mesh_; }
    [[nodiscard]] decoder::DecoderPart part(const storage::TransformerConfig& config) const;

    // Connects to all ranks. ROWS_NUMEL is the largest number of values that the ranks sum in one
    // operation. Throws what open_job_comm() throws. REQUIRES: there is more than one rank.
    void open(int64_t rows_numel, Duration time_limit);
    // Sends the VALUE of rank 0 to all ranks, and returns it on each rank. REQUIRES: open().
    [[nodiscard]] int64_t of_first(int64_t value);
    // Returns null if no other rank shares this rank's layers. REQUIRES: open().
    [[nodiscard]] decoder::GroupSum* sum() { return sum_ ? &*sum_ : nullptr; }
    [[nodiscard]] decoder::GroupParts parts(decoder::Decoder& decoder);
    // Makes the ranks that wait for this rank fail with the message WHY.
    void poison(const std::string& why) const;

  private:
    launch::WorkerEnvironment environment_;
    decoder::RankMesh mesh_;
    runtime::PipelinePlace place_;
    std::optional<runtime::JobComm> all_;
    std::optional<runtime::JobComm> stage_;
    runtime::StageLinks links_;
    std::optional<decoder::GroupSum> sum_;
};

DecoderRanks::DecoderRanks(launch::WorkerEnvironment environment,
                           const storage::TransformerConfig& config, int tensor_ranks)
    : environment_(std::move(environment)) {
    mesh_ = decoder::choose_mesh(config, environment_.node_sizes, tensor_ranks);
    place_ = runtime::make_pipeline_place(environment_.node_sizes, mesh_.ranks_of_stages(),
                                          environment_.rank);
}

decoder::DecoderPart DecoderRanks::part(const storage::TransformerConfig& config) const {
    return decoder::decoder_part(config,
                                 {environment_.rank % mesh_.tensor_ranks, mesh_.tensor_ranks},
                                 {place_.stage, mesh_.stages});
}

void DecoderRanks::open(int64_t rows_numel, Duration time_limit) {
    runtime::ArenaLayout of_all(environment_.local_world_size);
    const runtime::SliceId messages = runtime::add_host_link(of_all, mesh_.stages);
    all_ = runtime::open_job_comm(environment_, std::move(of_all), time_limit);
    if (mesh_.tensor_ranks > 1) {
        runtime::ArenaLayout of_stage(place_.of_stage.local_world_size());
        const decoder::GroupSum::Slices slices =
            decoder::GroupSum::add_slices(of_stage, rows_numel);
        stage_ = runtime::open_group_comm(
            environment_, *all_,
            {{place_.of_stage, place_.members}, "stage", std::move(of_stage), time_limit});
        sum_.emplace(*stage_->collectives, slices);
    }
    if (mesh_.stages > 1)
        links_ = runtime::open_stage_links(environment_, *all_, place_, messages, time_limit);
}

int64_t DecoderRanks::of_first(int64_t value) {
    all_->collectives->broadcast(std::as_writable_bytes(std::span(&value, 1)));
    return value;
}

decoder::GroupParts DecoderRanks::parts(decoder::Decoder& decoder) {
    return {decoder, *all_->collectives, sum(), place_, links_.links};
}

void DecoderRanks::poison(const std::string& why) const {
    for (const std::optional<runtime::JobComm>* comm : {&stage_, &all_})
        if (*comm && (*comm)->collectives) (*comm)->collectives->poison(why);
    for (runtime::Link* link : links_.links)
        if (link != nullptr) link->abort(why);
}

namespace {

constexpr int64_t kThreadsMax = 4096;

std::optional<kernels::MatrixForm> form_named(const std::string& name) {
    using kernels::MatrixForm;
    for (const MatrixForm form : {MatrixForm::kF32, MatrixForm::kBf16, MatrixForm::kFp16,
                                  MatrixForm::kInt8, MatrixForm::kInt4, MatrixForm::kNf4})
        if (name == kernels::matrix_form_name(form)) return form;
    return std::nullopt;
}

DType cache_dtype(const std::string& name) {
    if (name == "bf16") return DType::kBF16;
    return name == "fp16" ? DType::kF16 : DType::kF32;
}

// Opens the adapter in FOLDER, and makes the changes in CONFIG that the adapter requires. Returns
// nullopt if there is no adapter.
std::optional<storage::AdapterChanges> open_adapter(const std::string& folder,
                                                    storage::TransformerConfig& config) {
    if (folder.empty()) return std::nullopt;
    storage::AdapterChanges adapter(folder, &config);
    adapter.adapt(config);
    return adapter;
}

// Makes a folder for the model if it is a GGUF file, and names the folder in ARGUMENTS. Returns
// null for any other model.
std::unique_ptr<storage::GgufFolder> folder_of_gguf(DecoderArguments& arguments) {
    if (!storage::is_gguf_file(arguments.model)) return nullptr;
    auto folder = std::make_unique<storage::GgufFolder>(arguments.model);
    arguments.gguf = arguments.model;
    arguments.model = folder->path();
    return folder;
}

}  // namespace

int run_with_decoder(DecoderArguments& arguments, std::string_view folder_command,
                     const std::function<void(RankProcess& process)>& work) {
    const std::unique_ptr<storage::GgufFolder> gguf = folder_of_gguf(arguments);
    if (gguf == nullptr)
        arguments.model = folder_command.empty()
                              ? storage::model_at(arguments.model)
                              : storage::folder_model_at(arguments.model, folder_command);
    arguments.adapter = storage::adapter_at(arguments.adapter);
    return run_as_rank(work);
}

void declare_decoder(CommandLine& app, DecoderArguments& arguments) {
    app.add("--adapter DIR", arguments.adapter, "a trained adapter (LoRA) to use with the model");
    app.add("--weights FORM", arguments.weights,
            "form of the weights: as-is, or converted when they are read: f32, bf16, fp16, int8, "
            "int4, nf4")
        .show_default()
        .one_of({"as-is", "f32", "bf16", "fp16", "int8", "int4", "nf4"});
    app.add("--cache-dtype NAME", arguments.cache,
            "type of the cached keys and values: fp32, bf16, fp16")
        .show_default()
        .one_of({"fp32", "bf16", "fp16"});
    app.add("--threads N", arguments.threads,
            "number of threads; 0: OMP_NUM_THREADS if set, else one for each processor")
        .show_default()
        .range(int64_t{0}, kThreadsMax);
    app.add("--tensor-ranks N", arguments.tensor_ranks,
            "number of ranks that share each layer; groups of N ranks are pipeline stages; 0: the "
            "ranks of a host")
        .show_default()
        .range(int64_t{0}, int64_t{4096});
    app.add("--timeout SECONDS", arguments.timeout_s,
            "how long a rank waits for another rank before it ends the job as hung")
        .show_default()
        .range(0.1, 86'400.0);
}

void declare_cpu(CommandLine& app, DecoderArguments& arguments) {
    app.add("--device NAME", arguments.device, "device that computes: only cpu in this version")
        .show_default()
        .one_of({"cpu"});
}

DecoderSession::DecoderSession(DecoderArguments arguments, RankProcess& process)
    : arguments_(std::move(arguments)),
      gguf_(folder_of_gguf(arguments_)),
      process_(process),
      folder_(storage::open_model_folder(arguments_.model)),
      stored_folder_(folder_),
      adapter_(open_adapter(arguments_.adapter, folder_.config)),
      ranks_(std::make_shared<DecoderRanks>(process.environment, folder_.config,
                                            static_cast<int>(arguments_.tensor_ranks))) {
    if (adapter_ && process_.is_first())
        if (const std::string other =
                storage::other_base_text(arguments_.adapter, arguments_.model);
            !other.empty())
            log_warn("adapter", "{}", other);
    if (!adapter_ && process_.is_first())
        if (const std::string text = storage::unused_adapter_text(arguments_.model); !text.empty())
            log_warn("adapter", "{}; to use it: --adapter {}", text, shell_word(arguments_.model));
    // An adapter that adds tokens or drops padding changes the number of the embedding's rows only
    // by a few. If half of the rows are missing, the adapter belongs to another model.
    if (adapter_ && folder_.config.vocabulary < stored_folder_.config.vocabulary / 2)
        fail(ExitCode::kInput,
             "{}: the adapter's embeddings or output layer have {}, but {} has {}: the adapter "
             "belongs to another model",
             printable(arguments_.adapter), counted(folder_.config.vocabulary, "row"),
             printable(arguments_.model), stored_folder_.config.vocabulary);
    stored_context_ = folder_.config.context;
    // A failure may be reported after the end of the session, so the function keeps the ranks
    // alive.
    process.on_failure = [ranks = ranks_](const std::string& why) { ranks->poison(why); };
    if (arguments_.context > 0)
        folder_.config.context = folder_.config.has_learned_positions
                                     ? std::min(arguments_.context, folder_.config.context)
                                     : arguments_.context;
}

int DecoderSession::threads() const {
    const int64_t threads = arguments_.threads > 0
                                ? arguments_.threads
                                : launch::rank_threads(process_.environment.local_world_size);
    return static_cast<int>(std::min(threads, kThreadsMax));
}

std::optional<MemoryLimit> DecoderSession::memory_share() const {
    return tightest_share(read_memory_state().limits, process_.environment.local_world_size);
}

// Returns the number of cache pages that fit in the memory that the system still has, but at most
// WANTED. A tenth of the memory is left for the rest of the computation. The weights are not
// counted: they are mapped from their file, or already in memory.
int64_t DecoderSession::pages_that_fit(int64_t wanted, int64_t least, Bytes page) const {
    const std::optional<MemoryLimit> tightest = memory_share();
    if (!tightest) return wanted;
    const int64_t fitting = tightest->left.value / 10 * 9 / std::max<int64_t>(1, page.value);
    if (fitting >= wanted) return wanted;
    if (fitting < least)
        fail(ExitCode::kSetup,
             "the cache of keys and values needs {} for {} tokens, but only {} is free ({}): use "
             "fewer tokens (--context, or --cache-tokens of serve), --cache-dtype bf16, or more "
             "hosts",
             to_text(page * least), least * decoder::kPagePositions, to_text(tightest->left),
             tightest->name);
    return fitting;
}

void DecoderSession::open(int64_t wanted, int64_t least) {
    const auto begin = std::chrono::steady_clock::now();
    std::optional<Progress> progress;
    if (process_.is_first()) progress.emplace("decoder", "reading the model");
    const int threads = this->threads();
    team_ = std::make_unique<kernels::ThreadTeam>(threads, kernels::ThreadTeam::kTokenSpin);
    storage::require_weights(folder_);
    decoder::WeightSource source(stored_folder_, form_named(arguments_.weights), *team_);
    // Learned positions are a table in the file; all of it is read, however many positions are
    // used.
    storage::TransformerConfig stored = folder_.config;
    stored.context = stored_context_;
    if (adapter_)
        source.adapt(
            *adapter_, stored,
            [](std::span<float> weight, const storage::WeightChange& change, bool transposed) {
                graph::take_out_beginning(
                    weight, change.pair->out(),
                    {change.init, change.pair->r, change.pair->scale, transposed});
            });
    decoder::DecoderWeights weights =
        decoder::load_decoder(stored, ranks_->part(folder_.config), source);
    const int64_t bytes = weights.bytes;
    const std::optional<MemoryLimit> limit = memory_share();
    decoder::DecoderOptions options;
    options.rows_max = arguments_.rows_max;
    options.cache = cache_dtype(arguments_.cache);
    options.streams = limit && weights.mapped_bytes > limit->left.value;
    if (options.streams)
        log_info("decoder",
                 "the weights need {}, but only {} is free ({}), so each step reads the weights "
                 "from disk again",
                 to_text(Bytes{weights.mapped_bytes}), to_text(limit->left), limit->name);
    options.frequencies = graph::rotary_frequencies(folder_.config);
    if (!ranks_->is_alone())
        ranks_->open(
            std::max(arguments_.rows_max * folder_.config.width, folder_.config.vocabulary),
            std::chrono::milliseconds(static_cast<int64_t>(arguments_.timeout_s * 1e3)));
    const Bytes page{
        decoder::Decoder::page_bytes(folder_.config, ranks_->part(folder_.config), options.cache)};
    options.pages = process_.is_first() ? pages_that_fit(wanted, least, page) : wanted;
    if (!ranks_->is_alone()) {
        options.pages = ranks_->of_first(options.pages);
        if (!process_.is_first())
            static_cast<void>(pages_that_fit(options.pages, options.pages, page));
    }
    decoder_ = std::make_unique<decoder::Decoder>(folder_.config, std::move(weights), options,
                                                  *team_, ranks_->sum());
    if (ranks_->is_alone()) {
        runner_ = std::make_unique<decoder::LoneRunner>(*decoder_);
    } else {
        auto group = std::make_unique<decoder::GroupRunner>(ranks_->parts(*decoder_));
        group_ = group.get();
        runner_ = std::move(group);
    }
    if (!process_.is_first()) return;
    neighbours_.emplace(
        "decoder",
        ProcessorShare{launch::processors_allowed(), process_.environment.local_world_size, threads,
                       "--threads "},
        arguments_.streams_text);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    log_info("decoder", "{}: {} of weights ({}){}, {}, {} kernels, opened in {:.2f} s",
             storage::architecture_text(folder_.config), to_text(Bytes{bytes}), arguments_.weights,
             ranks_->is_alone() ? ""
                                : fmt::format(" on each of {} tensor ranks x {} stages",
                                              ranks_->mesh().tensor_ranks, ranks_->mesh().stages),
             counted(threads, "thread"), kernels::matrix_isa_name(kernels::matrix_isa_in_use()),
             seconds.count());
}

void DecoderSession::keep_waiting() {
    if (group_ != nullptr) group_->keep_waiting();
}

void DecoderSession::finish() {
    if (group_ == nullptr) return;
    if (process_.is_first()) {
        group_->end();
    } else {
        group_->follow();
    }
}

}  // namespace dslaunch::worker
