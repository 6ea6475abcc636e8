// Trains a model in a program that has its own loop and its own data, as `deepspeed.initialize`
// does in Python. `dslaunch ./program` starts one process for each rank; a program that is started
// directly is the only rank. Guide: docs/guide/engine.md. Link with dslaunch::engine, which needs
// the version of LibTorch that this library was built with.
//
// Functions throw only dslaunch::Error, and write nothing to stdout. The library handles one
// signal, SIGBUS, and only if a file of the model can no longer be read, because its disk failed or
// the file became shorter. The library then names the file on stderr and ends the process with
// code 66. Every other SIGBUS goes to the previous handler. With several hosts, Gloo makes the
// process ignore SIGPIPE. All ranks of a job make the same calls in the same order. A call waits
// for the other ranks unless its comment says otherwise.
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
    int local_rank = 0;                        // index among the ranks of its host
    int host_rank = 0;                         // index of its host
    std::vector<int> ranks_of_host = {1};      // ranks of each host; their sum is world_size
    std::string master_address = "127.0.0.1";  // address of rank 0's host, for several hosts
    int master_port = 0;                       // free port, on which rank 0 listens
    // The file descriptor of the memory that the ranks of this host share; dslaunch opens it. It
    // may be -1 if this host has only one rank.
    int memory_fd = -1;
    std::string devices;  // the GPUs of the host's ranks, as in CUDA_VISIBLE_DEVICES; empty: none
    int restarts = 0;     // number of times that the job was restarted after a failure
};

// Returns the place that dslaunch wrote into the environment (RANK, WORLD_SIZE, LOCAL_RANK,
// MASTER_ADDR, …). If RANK is not set, returns the place of a job's only rank. Throws kSetup that
// names a variable if it is missing or contradicts another variable. Does not wait.
[[nodiscard]] Ranks ranks_from_environment();

// The log lines on stderr that the library writes.
enum class EngineLog {
    kErrors,
    kWarnings,
    kInfo,    // also a line every `steps_per_print` steps, on rank 0
    kDetail,  // also the plan's choices
};

// The options of an engine.
struct EngineOptions {
    std::string model;   // an archive (.pt, .pt2) or a Hugging Face folder
    std::string config;  // ds_config.json; empty: the file in or beside the archive, or defaults
    std::vector<std::string> set;  // "key=value", as for `dslaunch --set`
    // An example of train_batch()'s inputs, with one row or more: a tensor for each argument of
    // forward, in forward's order, and then the target if the config has dslaunch.loss. Only types
    // and shapes matter, but integers that the model uses as indices must be valid indices. All
    // ranks give the same shapes.
    std::vector<at::Tensor> example;
    // The folder for checkpoints, weights and metrics.jsonl, as in `dslaunch --output`. It must not
    // contain another run unless `resume` is set. If it is empty, nothing is written. All ranks
    // give the same folder.
    std::string output;
    // The checkpoint to resume from: the folder of a complete checkpoint, or "auto" for the newest
    // complete one in `output`. If it is empty, or if "auto" finds none, training begins at the
    // first step. After a restart by `dslaunch --max-restarts`, every run resumes as with "auto".
    std::string resume;
    // The number of threads that LibTorch uses in this rank. If it is 0, OMP_NUM_THREADS gives the
    // number; without this variable, it is the host's processors divided by its ranks. It is set
    // for the process and for each calling thread. Another number may change the last bits of sums.
    int threads = 0;
    std::chrono::milliseconds time_limit{300'000};  // for each wait for another rank
    EngineLog log = EngineLog::kWarnings;
    bool trust_model = false;  // lets the model's code use files, memory and processes
    // If true, malloc and LibTorch keep freed memory for the next step, as in dslaunch. This makes
    // steps faster, applies to the whole process, and changes no result.
    bool keeps_memory = true;
};

// The result of a step, equal on all ranks.
struct StepResult {
    int64_t step = 0;                     // steps done, including steps before a resume
    double loss = 0;                      // mean over all rows of all ranks, before the update
    bool skipped = false;                 // gradients were not finite (fp16), so nothing changed
    double learning_rate = 0;             // learning rate of this step
    double loss_scale = 1;                // loss scale of this step
    std::optional<double> gradient_norm;  // nullopt: the config asks for no norm
    // True if a rank called ask_to_end(), or if the time limit of dslaunch.save.time_limit or of
    // Slurm is near. The program should then save and end its loop.
    bool should_end = false;
};

// A model in training on this rank. A process may have one engine at a time. If a host has several
// ranks, a process may have only one engine in its life, because these ranks share one memory. One
// thread at a time may call the engine; other threads may use LibTorch meanwhile. A call seeds
// LibTorch's default generator for dropout and restores it at its end. Other threads that draw
// random numbers therefore need an at::Generator of their own. The engine starts threads, so a
// fork() must be followed by exec().
//
// Ranks that make different calls get kDiverged, whose message names these ranks.
//
// After an Error, an engine is broken: every call throws the first error again, and the other ranks
// get kPeerLost with its message. The process should then end, because threads may be stuck in
// calls that nothing can end. Files of offloaded states are removed at once. But if a job has only
// one rank, an Error{kInput} or {kUsage} about a call's arguments does not break its engine.
class Engine {
  public:
    // Reads model and config, plans the step, meets the other ranks, and places the weights of the
    // model or of the checkpoint. Throws kConfig with all problems of the config, kInput for model
    // and example, kUsage for a second engine, kSetup if memory is short, kDisk if `output` has no
    // room for the weights and a checkpoint, kDiverged if a rank's config or model differs from
    // rank 0's, kCheckpoint, kHosts, kHang.
    [[nodiscard]] static Engine open(const EngineOptions& options, const Ranks& ranks);

    // An engine that was moved from can only be destroyed; its other calls throw kUsage.
    Engine(Engine&&) noexcept;
    Engine& operator=(Engine&&) = delete;
    // Does not wait for other ranks. Abandons a save that is under way: call close() first. Keeps
    // the memory of a broken engine until the process ends.
    ~Engine();

    // Takes one step of the optimizer with this rank's rows: forward, backward and update run as
    // one plan, in gradient_accumulation_steps micro batches. INPUTS have the types and shapes of
    // EngineOptions::example, with rows_per_step() rows each. They are on the CPU, contiguous or
    // not. Integers are read as int64 and floats as fp32. Ranks with equal data_rank() give equal
    // rows. Throws kInput, naming argument and row, before anything is computed. Throws kDiverged
    // if the loss is not finite (fp16 skips the step instead), kRankFailed if an operator fails,
    // and kCheckpoint if a save that save_checkpoint(false) began has failed.
    StepResult train_batch(const std::vector<at::Tensor>& inputs);

    // Returns the mean loss of INPUTS with the present weights in eval mode. Each rank gives its
    // own rows, and all ranks give the same number of rows. With several data ranks, this number is
    // a multiple of micro_rows(). Changes nothing. Throws as train_batch() does.
    [[nodiscard]] double evaluate(const std::vector<at::Tensor>& inputs);

    // Saves everything that a resumed run needs as a checkpoint in `output`; dslaunch can read it
    // too. If WAITS is true, returns when the checkpoint is durable. Otherwise, writing continues
    // during the next steps; the next save, close() or export_weights() then waits for its end.
    // Throws kUsage without `output`, kCheckpoint, kDisk.
    void save_checkpoint(bool waits = true);

    // Writes the trained weights into `output` as model.safetensors and model.pt; with LoRA, writes
    // the adapter instead. Adds the config and tokenizer of a Hugging Face folder. Then closes the
    // engine. Throws kUsage without `output`, kDisk, kCheckpoint if an unfinished save failed, and
    // kDiverged if all steps were skipped.
    void export_weights();

    // Finishes a save that is under way, leaves the other ranks, and frees all memory. From then
    // on, every call except close() and ask_to_end() throws kUsage.
    void close();

    // Asks all ranks to end: the next train_batch() sets should_end on every rank. May be called in
    // a signal handler and on any thread, even during or after close(), but not while the engine is
    // moved or destroyed. Does not wait.
    void ask_to_end() noexcept;

    // Return the number of steps done, and the number of rows that all ranks used in them. Both
    // include the run that was resumed, so they tell where to continue in the data. Do not wait.
    [[nodiscard]] int64_t step() const;
    [[nodiscard]] int64_t rows_seen() const;
    // Return the number of this rank's rows in a micro batch (train_micro_batch_size_per_gpu), and
    // in a step. Do not wait.
    [[nodiscard]] int64_t micro_rows() const;
    [[nodiscard]] int64_t rows_per_step() const;
    // data_ranks() returns the number of groups of ranks that get different rows. data_rank()
    // returns the index of this rank's group. All ranks of one pipeline are in one group, and so
    // are all ranks that share layers or positions. Both functions return at once.
    [[nodiscard]] int data_rank() const;
    [[nodiscard]] int data_ranks() const;
    // Returns the resolved config as JSON, with all defaults. Does not wait.
    [[nodiscard]] std::string config_json() const;

  private:
    class Session;
    explicit Engine(std::unique_ptr<Session> session);
    std::unique_ptr<Session> session_;
};

}  // namespace dslaunch
