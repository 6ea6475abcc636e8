// A training loop of one's own: a GPT learns the bytes of a text, with batches that this program
// makes. It trains, evaluates, saves, and resumes when it is called again.
#include <ATen/ATen.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "dslaunch/engine.h"

namespace {

constexpr int64_t kContext = 32;  // bytes of a sample

// The text as samples: `context` bytes, and the same shifted by one as the targets.
class Samples {
  public:
    explicit Samples(const char* path) {
        std::ifstream file(path, std::ios::binary);
        const std::string text(std::istreambuf_iterator<char>(file), {});
        const std::vector<uint8_t> bytes(text.begin(), text.end());
        if (std::ssize(bytes) <= kContext)
            throw dslaunch::Error(dslaunch::ExitCode::kInput,
                                  std::string(path) + ": has less text than a sample needs");
        bytes_ = at::tensor(bytes, at::kByte).to(at::kLong);
        count_ = (bytes_.numel() - 1) / kContext;
    }
    [[nodiscard]] int64_t count() const { return count_; }

    // Returns the arguments of the model's forward for the samples NUMBERS.
    [[nodiscard]] std::vector<at::Tensor> rows(const std::vector<int64_t>& numbers) const {
        std::vector<at::Tensor> tokens, targets;
        for (const int64_t number : numbers) {
            const int64_t begin = number % count_ * kContext;
            tokens.push_back(bytes_.narrow(0, begin, kContext));
            targets.push_back(bytes_.narrow(0, begin + 1, kContext));
        }
        return {at::stack(tokens), at::stack(targets)};
    }

  private:
    at::Tensor bytes_;
    int64_t count_ = 0;
};

// Returns the samples of this rank in the step after `rows_seen` rows of all ranks: whole micro
// batches in turn, so that they are the same however many ranks there are.
std::vector<int64_t> numbers_of_step(const dslaunch::Engine& engine, int64_t rows_seen) {
    const int64_t rows = engine.micro_rows(), ranks = engine.data_ranks();
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < engine.rows_per_step(); ++i)
        numbers.push_back(rows_seen + (i / rows * ranks + engine.data_rank()) * rows + i % rows);
    return numbers;
}

dslaunch::Engine* engine_of_signal = nullptr;

// Ctrl-C saves before the program ends, while this object lives.
struct EndsBySignal {
    explicit EndsBySignal(dslaunch::Engine& engine) {
        engine_of_signal = &engine;
        for (const int number : {SIGINT, SIGTERM})
            std::signal(number, [](int) { engine_of_signal->ask_to_end(); });
    }
    EndsBySignal(const EndsBySignal&) = delete;
    EndsBySignal& operator=(const EndsBySignal&) = delete;
    ~EndsBySignal() {
        for (const int number : {SIGINT, SIGTERM}) std::signal(number, SIG_DFL);
    }
};

void train(char** argv, int64_t steps) {
    const Samples samples(argv[3]);
    const dslaunch::Ranks ranks = dslaunch::ranks_from_environment();
    dslaunch::Engine engine = dslaunch::Engine::open({.model = argv[1],
                                                      .config = argv[2],
                                                      .example = samples.rows({0}),
                                                      .output = argv[4],
                                                      .resume = "auto"},
                                                     ranks);
    const EndsBySignal ends_by_signal(engine);
    if (ranks.rank == 0 && engine.step() > 0)
        std::printf("goes on after step %ld\n", long{engine.step()});

    bool ends = false;
    while (engine.step() < steps && !ends) {
        const auto result =
            engine.train_batch(samples.rows(numbers_of_step(engine, engine.rows_seen())));
        if (ranks.rank == 0) std::printf("step %ld: loss %.17g\n", long{result.step}, result.loss);
        ends = result.should_end;
    }
    std::vector<int64_t> last;  // each rank evaluates samples of its own, from the end of the text
    for (int64_t row = 0; row < engine.micro_rows(); ++row)
        last.push_back(samples.count() - 1 - engine.data_rank() * engine.micro_rows() - row);
    const double held_out = engine.evaluate(samples.rows(last));
    if (ranks.rank == 0) std::printf("held-out loss %.17g\n", held_out);
    engine.save_checkpoint();
    if (ends) return engine.close();
    engine.export_weights();
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: own_loop MODEL CONFIG TEXT OUTPUT STEPS\n");
        return 64;
    }
    try {
        train(argv, std::atol(argv[5]));
        return 0;
    } catch (const dslaunch::Error& error) {
        std::fprintf(stderr, "own_loop: %s\n", error.what());
        return static_cast<int>(error.code());
    }
}
