// Weights that the stages of a pipeline bring to the first stage, however long it takes.
#include "runtime/save/final_weights.h"

#include <ATen/core/Tensor.h>
#include <fmt/core.h>

#include <thread>

#include "base/fd.h"
#include "runtime/save/save_weights.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "support/temporary_folder.h"
#include "support/world.h"

namespace dslaunch::test {

using namespace graph;
using namespace plan;
using namespace runtime;
namespace {

using namespace std::chrono_literals;

constexpr int kStages = 3;
constexpr int kParametersOfStage = 12;
constexpr Duration kLimit = 1s;   // the longest wait of a rank for another one
constexpr Duration kPace = 50ms;  // time of a parameter
// The last stage's turn comes after the limit, but each message comes long before it.
static_assert((kStages - 1) * kParametersOfStage * kPace > kLimit);
static_assert(10 * kPace < kLimit);

Model make_sharded_model(double factor) {
    NamedTensors parameters;
    for (int p = 0; p < kStages * kParametersOfStage; ++p)
        parameters.emplace_back(fmt::format("p{}", p), ramp(4 + p) * factor);
    return script_model("def forward(self, x: Tensor) -> Tensor:\n    return x + self.p0[0]\n",
                        parameters);
}

// A stage's parameters in shards of its ranks. It takes time to gather them.
class SlowState final : public SavableState {
  public:
    SlowState(const Model& whole, int stage, Collectives& peers)
        : whole_(whole), stage_(stage), peers_(peers) {}

    [[nodiscard]] std::vector<int> parameters_elsewhere() const override {
        std::vector<int> own;
        for (int p = 0; p < kParametersOfStage; ++p) own.push_back(stage_ * kParametersOfStage + p);
        return own;
    }
    void bring_weights(const UseWeights& use) override {
        for (const int parameter : parameters_elsewhere()) {
            std::this_thread::sleep_for(kPace);
            peers_.barrier();
            const at::Tensor values = whole_.parameters()[parameter].tensor.detach();
            if (use)
                use(parameter,
                    {values.const_data_ptr<float>(), static_cast<size_t>(values.numel())});
        }
    }

    [[nodiscard]] std::vector<SavedPiece> saved_pieces() override { return {}; }
    [[nodiscard]] std::optional<int64_t> updates_of(int) const override { return std::nullopt; }
    [[nodiscard]] at::Tensor untrained_values(int) const override { return {}; }

  private:
    const Model& whole_;
    int stage_;
    Collectives& peers_;
};

std::string content(const TemporaryFolder& folder, const std::string& name) {
    return read_file(folder.path() + "/" + name, 1 << 20);
}

}  // namespace

TEST_CASE("a stage waits for its turn as long as the ones before it get on") {
    for (const int data : {1, 2}) {
        INFO(data << " ranks a stage");
        const TemporaryFolder expected, written;
        Model whole = make_sharded_model(0.5);
        WeightWriter(whole, expected.path(), {}).finish();
        const FlatLayout layout;  // no slices: all parameters are elsewhere
        testing::InProcessHub hub(kLimit);
        std::vector<std::thread> stages;
        std::vector<std::optional<Error>> failed(kStages);
        for (int stage = 0; stage < kStages; ++stage)
            stages.emplace_back([&, stage] {
                const std::unique_ptr<Link> end = hub.link_of(stage);
                const StageLink link(std::vector<Link*>(kStages, end.get()), stage);
                testing::InProcessWorld world({{data}, kLimit}, [](ArenaLayout&) {});
                for (const auto& error :
                     testing::outcomes(world, [&](testing::InProcessRank&self, int rank) {
                         Model model = make_sharded_model(-3.0);
                         SlowState state(whole, stage, *self.collectives);
                         write_final_weights({&model,
                                              &model,
                                              &state,
                                              &layout,
                                              &link,
                                              nullptr,
                                              self.collectives.get(),
                                              {},
                                              stage == 0 && rank == 0 ? written.path() : ""});
                     }))
                    if (error) failed[stage] = error;
            });
        for (std::thread& stage : stages) stage.join();
        for (const std::optional<Error>& error : failed) {
            INFO((error ? error->what() : ""));
            CHECK(!error);
        }
        CHECK(content(written, "model.safetensors") == content(expected, "model.safetensors"));
        CHECK(content(written, "model.pt") == content(expected, "model.pt"));
    }
}

}  // namespace dslaunch::test
