#include "dslaunch/engine.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/machine/files_of_process.h"
#include "engine/engine_run.h"
#include "job/process/rank_failure.h"
#include "launch/plan/worker_environment.h"

namespace dslaunch {

namespace {

std::atomic<bool> has_engine{false};
std::atomic<bool> memory_is_used{false};  // an engine has used the memory that ranks share

// Returns the exit code and the message for ERROR, an exception of any type.
job::RankFailure reason_of(const std::exception_ptr& error) {
    try {
        return job::failure_of(error);
    } catch (...) {
        return {ExitCode::kInternal, "an exception of an unknown type"};
    }
}

// Returns the result of USE. If USE throws, throws an Error with the same message.
template <typename Use>
auto as_error(const Use& use) {
    try {
        return use();
    } catch (...) {
        const job::RankFailure failure = reason_of(std::current_exception());
        throw Error(failure.code, failure.message);
    }
}

// Throws Error{kSetup} if srun or mpirun started several processes but RANK is not set: then each
// process would train alone.
void require_named_rank() {
    if (launch::WorkerEnvironment::has_rank()) return;
    constexpr std::pair<const char*, const char*> kCounts[] = {{"SLURM_STEP_NUM_TASKS", "srun"},
                                                               {"OMPI_COMM_WORLD_SIZE", "mpirun"},
                                                               {"PMI_SIZE", "mpirun"}};
    for (const auto& [name, launcher] : kCounts) {
        const char* const count = std::getenv(name);
        if (count == nullptr || std::atoi(count) <= 1) continue;
        fail(
            ExitCode::kSetup,
            "{} started {} processes of this program, but RANK is not set, so no process knows its "
            "rank: start the program with dslaunch, which can itself use {} to reach the hosts, or "
            "set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
            launcher, count, launcher);
    }
}

// Returns the object of POINTER. Throws Error{kUsage} if it is null: the engine was moved from.
template <typename Object>
Object& object_of(const std::unique_ptr<Object>& pointer) {
    if (pointer == nullptr) throw Error(ExitCode::kUsage, "the engine was moved from");
    return *pointer;
}

// The right to be the only engine of this process; the destructor gives it up.
class OneEngine {
  public:
    explicit OneEngine(const Ranks& ranks) {
        const bool shares = ranks.ranks_of_host.size() < static_cast<size_t>(ranks.world_size);
        if (shares && memory_is_used.exchange(true))
            fail(ExitCode::kUsage,
                 "this process already had an engine; a process can open only one engine if "
                 "several ranks share a host: start the program again for another engine");
        if (has_engine.exchange(true))
            fail(ExitCode::kUsage, "this process has an engine already: close() it first");
    }
    OneEngine(const OneEngine&) = delete;
    OneEngine& operator=(const OneEngine&) = delete;
    ~OneEngine() { has_engine = false; }
};

}  // namespace

// The rank of an engine, and the error that broke the engine if there was one.
class Engine::Session {
  public:
    Session(const EngineOptions& options, const Ranks& ranks)
        : one_(std::make_unique<OneEngine>(ranks)),
          run_(std::make_unique<engine::EngineRun>(options, ranks, asked_)),
          rank_(ranks.rank) {}
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;
    ~Session() {
        if (run_ == nullptr) return;
        // The other ranks may wait for calls that this rank will not make.
        if (std::uncaught_exceptions() > 0)
            run_->poison("rank " + std::to_string(rank_) +
                         " closed its engine because of an exception");
        if (failure_) leave();
    }

    // Calls USE with the rank and returns the result. Any error breaks the engine.
    template <typename Use>
    auto use(const Use& use) {
        require_open();
        try {
            return use(*run_);
        } catch (...) {
            give_up(reason_of(std::current_exception()));
            throw_failure();
        }
    }
    // Calls USE to check arguments before a call. An error breaks the engine, except kInput and
    // kUsage in a job with only one rank.
    template <typename Use>
    void check(const Use& use) {
        require_open();
        try {
            use(*run_);
        } catch (...) {
            const job::RankFailure why = reason_of(std::current_exception());
            const bool is_refusal = why.code == ExitCode::kInput || why.code == ExitCode::kUsage;
            if (is_refusal && run_->is_alone()) throw Error(why.code, why.message);
            give_up(why);
            throw_failure();
        }
    }
    // Calls USE with the rank and returns the result. USE cannot change the rank.
    template <typename Use>
    auto look(const Use& use) const {
        require_open();
        return as_error([&] { return use(std::as_const(*run_)); });
    }

    void close() {
        if (run_ == nullptr) return;
        use([](engine::EngineRun& run) { run.close(); });
        end();
    }
    // Destroys the rank, and allows another engine in this process.
    void end() {
        run_.reset();
        one_.reset();
    }
    // A signal handler or another thread may call this at any time, even after the rank has ended.
    void ask_to_end() noexcept { asked_->store(true, std::memory_order_relaxed); }

  private:
    void require_open() const {
        if (failure_) throw Error(failure_->code, failure_->message);
        if (run_ == nullptr) throw Error(ExitCode::kUsage, "the engine was closed");
    }
    [[noreturn]] void throw_failure() const { throw Error(failure_->code, failure_->message); }
    void give_up(const job::RankFailure& why) {
        failure_ = why;
        run_->poison("rank " + std::to_string(rank_) + " failed: " + why.message);
        // The program may end at any time now. This removes only files of this library.
        remove_files_of_process();
    }
    // Keeps all objects until the process ends: threads may be stuck in calls that use them.
    void leave() {
        static_cast<void>(run_.release());
        static_cast<void>(one_.release());
    }

    const std::shared_ptr<std::atomic<bool>> asked_ = std::make_shared<std::atomic<bool>>(false);
    std::unique_ptr<OneEngine> one_;
    std::unique_ptr<engine::EngineRun> run_;  // null after the engine was closed
    int rank_;
    std::optional<job::RankFailure> failure_;
};

Ranks ranks_from_environment() {
    return as_error([] {
        require_named_rank();
        const auto found = launch::WorkerEnvironment::from_process();
        return Ranks{found.rank,       found.world_size,     found.local_rank,  found.node_rank,
                     found.node_sizes, found.master_address, found.master_port, found.arena_fd,
                     found.devices,    found.restart_count};
    });
}

Engine Engine::open(const EngineOptions& options, const Ranks& ranks) {
    return as_error([&] { return Engine(std::make_unique<Session>(options, ranks)); });
}

Engine::Engine(std::unique_ptr<Session> session) : session_(std::move(session)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine::~Engine() = default;

StepResult Engine::train_batch(const std::vector<at::Tensor>& inputs) {
    object_of(session_).check([&](engine::EngineRun& run) { run.take_rows(inputs); });
    return object_of(session_).use([](engine::EngineRun& run) { return run.step(); });
}

double Engine::evaluate(const std::vector<at::Tensor>& inputs) {
    object_of(session_).check([&](engine::EngineRun& run) { run.take_held_out(inputs); });
    return object_of(session_).use([](engine::EngineRun& run) { return run.evaluate(); });
}

void Engine::save_checkpoint(bool waits) {
    object_of(session_).check(
        [](engine::EngineRun& run) { run.require_output("save_checkpoint"); });
    object_of(session_).use([waits](engine::EngineRun& run) { run.save(waits); });
}

void Engine::export_weights() {
    object_of(session_).check([](engine::EngineRun& run) { run.require_output("export_weights"); });
    object_of(session_).use([](engine::EngineRun& run) { run.export_weights(); });
    object_of(session_).end();
}

void Engine::close() {
    object_of(session_).close();
}

void Engine::ask_to_end() noexcept {
    if (session_ != nullptr) session_->ask_to_end();
}

int64_t Engine::step() const {
    return object_of(session_).look([](const engine::EngineRun& run) { return run.steps(); });
}

int64_t Engine::rows_seen() const {
    return object_of(session_).look([](const engine::EngineRun& run) { return run.rows_seen(); });
}

int64_t Engine::micro_rows() const {
    return object_of(session_).look(
        [](const engine::EngineRun& run) { return run.batch().micro_rows; });
}

int64_t Engine::rows_per_step() const {
    return object_of(session_).look([](const engine::EngineRun& run) {
        return run.batch().micro_rows * run.batch().accumulation_steps;
    });
}

int Engine::data_rank() const {
    return object_of(session_).look([](const engine::EngineRun& run) { return run.data_rank(); });
}

int Engine::data_ranks() const {
    return object_of(session_).look([](const engine::EngineRun& run) {
        return static_cast<int>(run.batch().data_parallel_size);
    });
}

std::string Engine::config_json() const {
    return object_of(session_).look([](const engine::EngineRun& run) { return run.config_json(); });
}

}  // namespace dslaunch
