// Training in a program that has its own loop and its own data: what `deepspeed.initialize` is in
// Python. The program is started by `dslaunch ./program`, one process for each rank, or by itself
// as the only rank. Guide: docs/guide/engine.md. Link with dslaunch::engine, which needs LibTorch
// of the version that this library was built with.
//
// Every function throws dslaunch::Error and nothing else, and writes nothing to stdout. The library
// handles one signal, SIGBUS, and for one cause: if a file of the model cannot be read any more
// (its disk failed, or it was shortened), a line on stderr names it and the process ends with
// code 66. All other SIGBUS go to the handler that was there before. With several hosts, Gloo lets
// the process ignore SIGPIPE. All ranks of a job make the same calls in the same order; a call
// waits for the other ranks unless it says otherwise.
#pragma once

#include <ATen/core/Tensor.h>  // torch::Tensor is the same type

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dslaunch/error.h"

namespace dslaunch {

// The place of this process among the ranks of a job.
struct Ranks {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;                        // among the ranks of its host
    int host_rank = 0;                         // of its host among the hosts
    std::vector<int> ranks_of_host = {1};      // by host rank; their sum is world_size
    std::string master_address = "127.0.0.1";  // of rank 0's host; used with several hosts
    int master_port = 0;                       // free on that host; rank 0 listens on it
    // The memory that the ranks of this host share: a descriptor that dslaunch opened. -1: there is
    // none, and a host may have one rank only.
    int memory_fd = -1;
    std::string devices;  // the GPUs of the host's ranks, as in CUDA_VISIBLE_DEVICES; empty: none
    int restarts = 0;     // how often the job was started again after a failure
};

// Returns the place that dslaunch wrote into the environment (RANK, WORLD_SIZE, LOCAL_RANK,
// MASTER_ADDR, …); one rank alone if RANK is not set. Throws kSetup, naming a variable that is
// missing or contradicts another. Does not wait.
[[nodiscard]] Ranks ranks_from_environment();

// The log lines on stderr that the library writes.
enum class EngineLog {
    kErrors,
    kWarnings,
    kInfo,    // also a line every `steps_per_print` steps, on rank 0
    kDetail,  // also the plan's choices
};

// The parts of an engine.
struct EngineOptions {
    std::string model;   // an archive (.pt, .pt2) or a Hugging Face folder
    std::string config;  // ds_config.json; empty: the one in the archive or beside it, or defaults
    std::vector<std::string> set;  // "key=value", as `dslaunch --set`
    // One row or more of what train_batch() will get: a tensor for each argument of forward, in
    // forward's order (and the target of dslaunch.loss last). Only types and shapes matter, except
    // that integers must be valid. All ranks give the same shapes.
    std::vector<at::Tensor> example;
    // The folder for checkpoints, weights and metrics.jsonl, as `dslaunch --output`. It must hold
    // no other run unless `resume` is set. Empty: nothing is written. All ranks name one folder.
    std::string output;
    // "auto": from the newest whole checkpoint of `output`, or from the start if there is none; or
    // a checkpoint's folder, which must be whole. Empty: from the start. After a restart by
    // `dslaunch --max-restarts`, "auto" is taken by itself.
    std::string resume;
    // The processors that LibTorch uses in this rank. 0: OMP_NUM_THREADS, or without it the host's
    // processors divided by its ranks. It is set for the process, and for each thread that calls.
    // Another number may change the last bits of sums.
    int threads = 0;
    std::chrono::milliseconds time_limit{300'000};  // for each wait for another rank
    EngineLog log = EngineLog::kWarnings;
    bool trust_model = false;  // lets the model's code use files, memory and processes
    // Lets malloc and LibTorch keep freed memory for the next step, as dslaunch does: faster, but
    // it holds for the whole process. It changes no result.
    bool keeps_memory = true;
};

// The result of a step, equal on all ranks.
struct StepResult {
    int64_t step = 0;                     // steps done, from 1, with those before a resume
    double loss = 0;                      // mean over all rows of all ranks, before the update
    bool skipped = false;                 // gradients were not finite (fp16), so nothing changed
    double learning_rate = 0;             // of this step
    double loss_scale = 1;                // of this step
    std::optional<double> gradient_norm;  // nullopt: the config asks for no norm
    // True if a rank called ask_to_end(), or if the time is nearly over that
    // dslaunch.save.time_limit or Slurm gives: save and end the loop.
    bool should_end = false;
};

// A model in training on this rank. One engine at a time in a process; of several ranks on a host,
// one in the process's life, since they share one memory. One thread at a time calls it, and other
// threads may use LibTorch meanwhile; if they draw random numbers, each with an at::Generator of
// its own, since a call seeds LibTorch's default generator for dropout and restores it at its end.
// It starts threads of its own: a fork() must be followed by exec().
//
// Ranks that make different calls get kDiverged, which names them.
//
// After an Error, an engine is broken: every call throws the first error again, the other ranks get
// kPeerLost with its message, and the process should end, because threads may be stuck in calls
// that nothing can end. Files of offloaded states are removed at once. An Error{kInput} or {kUsage}
// about the arguments of a call of the only rank of a job leaves it as it was.
class Engine {
  public:
    // Reads model and config, plans the step, meets the other ranks, and places the weights of the
    // model or of the checkpoint. Throws kConfig with all problems of the config, kInput for model
    // and example, kUsage for a second engine, kSetup if memory is short, kDisk if `output` has no
    // room for the weights and a checkpoint, kDiverged if ranks have other configs or models than
    // rank 0, kCheckpoint, kHosts, kHang.
    [[nodiscard]] static Engine open(const EngineOptions& options, const Ranks& ranks);

    // The engine moved from only can be destroyed; other calls throw kUsage.
    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) = delete;
    // Waits for no other rank. A save that is under way is left as after a crash: call close()
    // first. Of a broken engine, the memory is kept until the process ends.
    ~Engine();

    // Takes one step of the optimizer with this rank's rows: forward, backward and update run as
    // one plan, in gradient_accumulation_steps micro batches. INPUTS are as EngineOptions::example:
    // contiguous or not, on the CPU, with rows_per_step() rows each. Integers are read as int64 and
    // floats as fp32. Ranks with equal data_rank() give equal rows. Throws kInput, naming argument
    // and row, before anything is computed; kDiverged for a loss that is not finite (fp16: the step
    // is skipped), kRankFailed if an operator fails, and kCheckpoint if the save failed that
    // save_checkpoint(false) began.
    StepResult train_batch(const std::vector<at::Tensor>& inputs);

    // Returns the mean loss of INPUTS with the present weights in eval mode. Each rank gives its
    // own rows, all ranks equally many; of several data ranks, a multiple of micro_rows(). Changes
    // nothing. Throws as train_batch() does.
    [[nodiscard]] double evaluate(const std::vector<at::Tensor>& inputs);

    // Saves everything that a resumed run needs as a checkpoint of `output`, which dslaunch reads
    // too. WAITS: until it is durable; else writing goes on during the next steps, and the next
    // save, close() or export_weights() waits. Throws kUsage without `output`, kCheckpoint, kDisk.
    void save_checkpoint(bool waits = true);

    // Writes the trained weights, model.safetensors and model.pt, or with LoRA the adapter, into
    // `output`, with the config and tokenizer of a Hugging Face folder, and closes the engine.
    // Throws kUsage without `output`, kDisk, kCheckpoint if a save that was under way failed, and
    // kDiverged if all steps were skipped.
    void export_weights();

    // Ends a save that is under way, and lets go of the other ranks and of all memory. Every call
    // but another close() throws kUsage from then on.
    void close();

    // Asks all ranks to end: the next train_batch() says so on each. Safe in a signal handler and
    // on any thread, also while the engine is closed, but not while it is moved or destroyed. Does
    // not wait.
    void ask_to_end() noexcept;

    // Return the number of steps done, and the number of rows that all ranks used in them. Both
    // include the run that was resumed, so they tell where the caller's data go on. Do not wait.
    [[nodiscard]] int64_t step() const;
    [[nodiscard]] int64_t rows_seen() const;
    // The rows of a micro batch of this rank (train_micro_batch_size_per_gpu), and of a step. Do
    // not wait.
    [[nodiscard]] int64_t micro_rows() const;
    [[nodiscard]] int64_t rows_per_step() const;
    // This rank among the ranks with different rows: data_rank() of data_ranks(). Ranks of a
    // pipeline, or that share layers or positions, have equal ones. Do not wait.
    [[nodiscard]] int data_rank() const;
    [[nodiscard]] int data_ranks() const;
    // The resolved config as JSON, every default filled in. Does not wait.
    [[nodiscard]] std::string config_json() const;

  private:
    class Session;
    explicit Engine(std::unique_ptr<Session> session);
    std::unique_ptr<Session> session_;
};

}  // namespace dslaunch
