// A decoder made from a Hugging Face folder, ready to compute batches in this process or together
// with the other ranks of its job. It owns weights, threads and cache. `dslaunch generate`, `serve`
// and `eval` use it. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/machine/busy_neighbours.h"
#include "base/machine/memory_limits.h"
#include "base/text/command_line.h"
#include "decoder/ranks/group_runner.h"
#include "kernels/thread_team.h"
#include "runtime/comm/host/hang_limit.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/gguf_model/gguf_model_reader.h"
#include "storage/huggingface/model_folder.h"
#include "worker/rank_process.h"

namespace dslaunch::worker {

// The arguments that all commands with a decoder share.
struct DecoderArguments {
    std::string model;    // a Hugging Face folder, or a GGUF file
    std::string gguf;     // the user's GGUF file, for which `model` is then a folder
    std::string adapter;  // folder of a trained adapter; empty: none
    std::string weights = "as-is";
    std::string cache = "fp32";
    int64_t threads = 0;  // 0: one for each processor that this process may use
    int64_t context = 0;  // positions that a text may have; 0: the model's own limit
    int64_t rows_max = 512;
    int64_t tensor_ranks = 0;  // ranks that share each layer; 0: choose_mesh() decides
    std::string device = "cpu";
    double timeout_s = std::chrono::duration<double>(runtime::kHangLimit).count();
    bool streams_text = false;  // no log line may interrupt the text on a terminal
};

// Declares --adapter, --weights, --cache-dtype, --threads, --tensor-ranks and --timeout.
void declare_decoder(CommandLine& app, DecoderArguments& arguments);
// Runs a command with a decoder, as a rank of a job or alone. Replaces the names of the model and
// the adapter in ARGUMENTS by their paths, and calls WORK. If the model is a GGUF file, replaces it
// by a temporary folder that exists until WORK returns. FOLDER_COMMAND names a command that needs a
// Hugging Face folder; if it is empty, the model may also be an archive. Returns the exit code.
// Throws Error{kInput} if the model or the adapter does not exist, and run_as_rank()'s errors.
int run_with_decoder(DecoderArguments& arguments, std::string_view folder_command,
                     const std::function<void(RankProcess& process)>& work);
// Declares --device for a command that runs only on CPUs.
void declare_cpu(CommandLine& app, DecoderArguments& arguments);

// The largest number of positions in a text and in a cache.
inline constexpr int64_t kPositionsMax = int64_t{1} << 32;

class DecoderRanks;

// The decoder of one model, used by one command.
class DecoderSession {
  public:
    // Opens only the folder and the adapter, so that folder() has the config with the adapter's
    // changes. PROCESS must outlive this object. Throws Error{kInput}, and Error{kUsage}
    // under the same conditions as decoder::choose_mesh().
    DecoderSession(DecoderArguments arguments, RankProcess& process);

    // Returns the model's folder, with the config after the adapter's changes.
    [[nodiscard]] const storage::ModelFolder& folder() const { return folder_; }
    // Returns the folder with the tokenizer's files: the adapter's folder if the adapter added
    // tokens.
    [[nodiscard]] const std::string& text_folder() const {
        const bool is_same = folder_.config.vocabulary == stored_folder_.config.vocabulary;
        return is_same ? arguments_.model : arguments_.adapter;
    }
    // Returns the number of positions that a text may have.
    [[nodiscard]] int64_t context() const { return folder_.config.context; }

    // Loads the weights and makes a cache, together with all ranks of the job. Rank 0 decides the
    // number of pages: WANTED, or as many as fit in memory, but at least LEAST. Only rank 0 reads
    // the texts to be continued or scored; their files need not exist on other hosts. Throws
    // Error{kInput} for bad weights, Error{kSetup} if memory is too small, and what
    // DecoderRanks::open() throws.
    void open(int64_t wanted, int64_t least);
    void open(int64_t pages) { open(pages, pages); }
    // Returns the number of pages in the cache. REQUIRES: open().
    [[nodiscard]] int64_t pages() const { return decoder_->options().pages; }
    // Returns the interface that computes batches. REQUIRES: open(), and this is rank 0.
    [[nodiscard]] decoder::BatchRunner& runner() { return *runner_; }
    // Tells the other ranks that rank 0 is alive while there is nothing to compute; otherwise they
    // would consider it lost. REQUIRES: this is rank 0.
    void keep_waiting();
    // Ends the work. On rank 0, tells the other ranks to end. On another rank, computes rank 0's
    // batches until rank 0 ends.
    void finish();

  private:
    [[nodiscard]] int threads() const;
    [[nodiscard]] std::optional<MemoryLimit> memory_share() const;
    [[nodiscard]] int64_t pages_that_fit(int64_t wanted, int64_t least, Bytes page) const;

    DecoderArguments arguments_;
    std::unique_ptr<storage::GgufFolder> gguf_;  // folder for a GGUF file; null for other models
    RankProcess& process_;
    storage::ModelFolder folder_;
    // The folder with its own config. folder() has the config with the adapter's changes.
    storage::ModelFolder stored_folder_;
    std::optional<storage::AdapterChanges> adapter_;
    int64_t stored_context_ = 0;             // the folder's context, without --context
    std::shared_ptr<DecoderRanks> ranks_;    // shared with PROCESS.on_failure
    decoder::GroupRunner* group_ = nullptr;  // equals runner_ if ranks share the decoder; else null
    std::unique_ptr<kernels::ThreadTeam> team_;
    std::unique_ptr<decoder::Decoder> decoder_;
    std::unique_ptr<decoder::BatchRunner> runner_;
    std::optional<BusyNeighbours> neighbours_;
};

}  // namespace dslaunch::worker
