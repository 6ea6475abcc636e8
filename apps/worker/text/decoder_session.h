// A decoder of a Hugging Face folder, ready to compute batches in this process or with the other
// ranks of its job: weights, threads and cache. Below `dslaunch generate`, `serve` and `eval`. One
// thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/machine/busy_neighbours.h"
#include "base/machine/memory_limits.h"
#include "base/text/command_line.h"
#include "decoder/ranks/group_runner.h"
#include "kernels/thread_team.h"
#include "runtime/comm/host/hang_limit.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/huggingface/model_folder.h"
#include "worker/rank_process.h"

namespace dslaunch::worker {

// The arguments that all commands with a decoder have.
struct DecoderArguments {
    std::string model;    // a Hugging Face folder
    std::string adapter;  // folder of a trained adapter; empty: none
    std::string weights = "as-is";
    std::string cache = "fp32";
    int64_t threads = 0;  // 0: one for each processor that this process may use
    int64_t context = 0;  // positions that a text may have; 0: the model's own limit
    int64_t rows_max = 512;
    int64_t tensor_ranks = 0;  // ranks that share each layer; 0: by the hosts
    std::string device = "cpu";
    double timeout_s = std::chrono::duration<double>(runtime::kHangLimit).count();
    bool streams_text = false;  // to a terminal, perhaps: no line may come between
};

// Declares --adapter, --weights, --cache-dtype, --threads, --tensor-ranks and --timeout.
void declare_decoder(CommandLine& app, DecoderArguments& arguments);
// Declares --device of a command that has CPUs alone.
void declare_cpu(CommandLine& app, DecoderArguments& arguments);

// No text, and no cache, has more positions.
inline constexpr int64_t kPositionsMax = int64_t{1} << 32;

class DecoderRanks;

class DecoderSession {
  public:
    // Opens the folder alone, and the adapter: the config is known afterwards, as the adapter makes
    // it. PROCESS must outlive this. Throws Error{kInput}, and Error{kUsage} as
    // decoder::choose_mesh().
    DecoderSession(DecoderArguments arguments, RankProcess& process);

    [[nodiscard]] const storage::ModelFolder& folder() const { return folder_; }
    // Returns the folder with the tokenizer's files: the adapter's, if it brought tokens.
    [[nodiscard]] const std::string& text_folder() const {
        const bool is_same = folder_.config.vocabulary == stored_folder_.config.vocabulary;
        return is_same ? arguments_.model : arguments_.adapter;
    }
    // Positions that a text may have.
    [[nodiscard]] int64_t context() const { return folder_.config.context; }

    // Takes the weights, and a cache of as many pages as rank 0 says, with all ranks of the job:
    // WANTED, or as many as memory holds, LEAST in any case. Rank 0 alone reads what is to be
    // written or scored: its files need not be on other hosts. Throws Error{kInput} for weights,
    // Error{kSetup} for memory, and what DecoderRanks::open() does.
    void open(int64_t wanted, int64_t least);
    void open(int64_t pages) { open(pages, pages); }
    // REQUIRES: open().
    [[nodiscard]] int64_t pages() const { return decoder_->options().pages; }
    // REQUIRES: open(), on rank 0.
    [[nodiscard]] decoder::StepRunner& runner() { return *runner_; }
    // Tells the other ranks, while there is nothing to compute, that rank 0 is alive: they believe
    // it lost otherwise. REQUIRES: rank 0.
    void keep_waiting();
    // Ends the work. Rank 0 tells the others that it is done; they compute until then.
    void finish();

  private:
    [[nodiscard]] int threads() const;
    [[nodiscard]] std::optional<MemoryLimit> memory_share() const;
    [[nodiscard]] int64_t pages_that_fit(int64_t wanted, int64_t least, Bytes page) const;

    DecoderArguments arguments_;
    RankProcess& process_;
    storage::ModelFolder folder_;
    // The folder's own config; the adapter makes folder().config of it.
    storage::ModelFolder stored_folder_;
    std::optional<storage::AdapterChanges> adapter_;
    int64_t stored_context_ = 0;             // of the folder, before --context
    std::shared_ptr<DecoderRanks> ranks_;    // shared by PROCESS, which frees them at a failure
    decoder::GroupRunner* group_ = nullptr;  // runner_, if ranks share the decoder
    std::unique_ptr<kernels::ThreadTeam> team_;
    std::unique_ptr<decoder::Decoder> decoder_;
    std::unique_ptr<decoder::StepRunner> runner_;
    std::optional<BusyNeighbours> neighbours_;
};

}  // namespace dslaunch::worker
