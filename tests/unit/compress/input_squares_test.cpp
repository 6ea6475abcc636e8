#include "compress/input_squares.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "support/catch.h"
#include "support/places.h"

namespace dslaunch::compress {

TEST_CASE("the squares of inputs are known for each layer's weights, and positive") {
    const std::string path = test::fixture_path("huggingface/llama");
    const storage::ModelFolder folder = storage::open_model_folder(path);
    storage::RotaryFrequencies frequencies;
    frequencies.all = {1, 0.01};
    const std::vector<std::vector<int32_t>> texts{{1, 2, 3, 4, 5}, {7, 8, 9}};
    int64_t told = 0;
    kernels::ThreadTeam team(1);
    const auto squares =
        input_squares(folder, frequencies, texts, {}, team, [&](int64_t layers) { told = layers; });
    CHECK(told == 2);
    for (const char* layer : {"0", "1"})
        for (const char* weight :
             {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
              "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
            const std::string name =
                std::string("model.layers.") + layer + "." + weight + ".weight";
            INFO(name);
            REQUIRE(squares.contains(name));
            const std::vector<float>& own = squares.at(name);
            const bool is_down = std::string(weight) == "mlp.down_proj";
            CHECK(own.size() == static_cast<size_t>(is_down ? 24 : 16));
            CHECK(std::ranges::all_of(own, [](float square) { return square > 0; }));
        }
    // Queries and keys have the same inputs. Twice the same text changes no mean.
    CHECK(squares.at("model.layers.0.self_attn.q_proj.weight") ==
          squares.at("model.layers.0.self_attn.k_proj.weight"));
    const auto again = input_squares(folder, frequencies, {texts[0], texts[1], texts[0], texts[1]},
                                     {}, team, nullptr);
    const std::vector<float>& one = squares.at("model.layers.1.mlp.down_proj.weight");
    const std::vector<float>& two = again.at("model.layers.1.mlp.down_proj.weight");
    for (size_t i = 0; i < one.size(); ++i) CHECK(two[i] == Approx(one[i]).epsilon(1e-5));
    // Texts that need more memory than there is are refused before they go through the model.
    CHECK_THROWS_WITH(
        input_squares(folder, frequencies, texts, MemoryLimit{"memory.max of group /job", {100}},
                      team, [](int64_t) { FAIL("a layer ran"); }),
        Catch::Contains("memory.max of group /job") && Catch::Contains("calibration texts"));
}

}  // namespace dslaunch::compress
