// Weights that are written parameter by parameter give the same files as weights in memory.
#include "runtime/save/save_weights.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <fstream>

#include "base/fd.h"
#include "graph/models/save_archive.h"
#include "support/catch.h"
#include "support/script_module.h"
#include "support/temporary_folder.h"

namespace dslaunch::test {

using namespace graph;
using namespace runtime;
namespace {

const char* const kText =
    "def forward(self, x: Tensor) -> Tensor:\n"
    "    return torch.matmul(torch.matmul(x, self.rows) + self.bias, self.columns)\n";

// Returns a model. `columns` lies in memory column by column; `twice` is `bias` under another name.
Model make_model(double factor) {
    torch::jit::Module module =
        script_module(kText,
                      {{"rows", ramp(12).view({3, 4}) * factor},
                       {"columns", ramp(20).view({5, 4}).t() * factor},
                       {"bias", ramp(4) * factor},
                       {"none", at::empty({0, 7}) * factor}},
                      {{"steps", at::full({}, 7, at::kLong)}, {"flag", at::full({3}, true)}});
    module.register_parameter("twice", module.attr("bias").toTensor(), /*is_buffer=*/false);
    return Model::adopt(module);
}

std::string file_content(const TemporaryFolder& folder, const std::string& name) {
    return read_file(folder.path() + "/" + name, 1 << 20);
}

int index_of(const Model& model, const std::string& name) {
    for (size_t i = 0; i < model.parameters().size(); ++i)
        if (model.parameters()[i].name == name) return static_cast<int>(i);
    return -1;
}

std::vector<float> in_memory_order(const at::Tensor& tensor) {
    const auto* const first = tensor.detach().const_data_ptr<float>();
    return {first, first + tensor.numel()};
}

}  // namespace

TEST_CASE("the room for output does not count a teacher, and counts scores in checkpoints only") {
    const TemporaryFolder folder;
    // More bytes than any disk has, in one element of memory.
    const at::Tensor endless = at::zeros({1}).expand({int64_t{1} << 55});
    const auto need = [&](bool is_helper, bool trains) {
        Model model = make_model(1);
        at::Tensor tensor = endless.detach();
        tensor.set_requires_grad(trains);
        model.add_parameter("more", tensor, is_helper);
        check_room_for_output(model, {folder.path(), 0, 0});
    };
    CHECK_NOTHROW(need(true, false));
    CHECK_THROWS_WITH(need(true, true), Catch::Matchers::Contains("a checkpoint needs"));
    CHECK_THROWS_WITH(need(false, false), Catch::Matchers::Contains("a checkpoint needs"));
}

TEST_CASE("weights put one by one make the files of weights that are in memory") {
    const TemporaryFolder from_memory, from_elsewhere;
    Model whole = make_model(0.5);
    REQUIRE_FALSE(whole.parameters()[index_of(whole, "columns")].tensor.is_contiguous());
    WeightWriter(whole, from_memory.path(), {}).finish();

    // The model that is written has other numbers, in 16 bits, than the numbers that are put.
    Model model = make_model(-3.0);
    std::vector<int> elsewhere;
    for (const char* name : {"columns", "none", "bias", "rows"}) {
        elsewhere.push_back(index_of(model, name));
        at::Tensor tensor = model.parameters()[elsewhere.back()].tensor;
        const at::NoGradGuard no_grad;
        tensor.set_data(tensor.to(at::kBFloat16));
    }
    WeightWriter writer(model, from_elsewhere.path(), elsewhere);
    for (const int parameter : elsewhere)
        writer.put(parameter, in_memory_order(whole.parameters()[parameter].tensor));
    CHECK_FALSE(std::filesystem::exists(from_elsewhere.path() + "/model.safetensors"));
    writer.finish();

    CHECK(file_content(from_elsewhere, "model.safetensors") ==
          file_content(from_memory, "model.safetensors"));
    CHECK(file_content(from_elsewhere, "model.pt") == file_content(from_memory, "model.pt"));
    CHECK(file_content(from_memory, "model.pt").size() > 500);
}

TEST_CASE("weights that are given up leave the files of before, and nothing else") {
    const TemporaryFolder folder;
    Model model = make_model(1.0);
    WeightWriter(model, folder.path(), {}).finish();
    const std::string weights = file_content(folder, "model.safetensors");
    {
        const int columns = index_of(model, "columns");
        WeightWriter writer(model, folder.path(), std::vector<int>{columns});
        writer.put(columns, std::vector<float>(20, 3.0F));
    }
    CHECK(file_content(folder, "model.safetensors") == weights);
    const std::filesystem::directory_iterator files(folder.path());
    CHECK(std::distance(begin(files), end(files)) == 2);
}

TEST_CASE("an archive that reads its weights from the other file keeps none of them in memory") {
    const TemporaryFolder folder;
    const int64_t numel = int64_t{16} << 20;
    Model model =
        script_model("def forward(self, x: Tensor) -> Tensor:\n    return x + self.w[0]\n",
                     {{"w", at::zeros({numel})}});
    WeightWriter writer(model, folder.path(), std::vector<int>{0});
    writer.put(0, std::vector<float>(static_cast<size_t>(numel), 1.0F));
    writer.finish();
    // Reads how many KiB of the tensor's mapping are resident, from /proc/self/smaps.
    std::ifstream maps("/proc/self/smaps");
    int64_t resident_kib = -1;
    bool here = false;
    for (std::string line; std::getline(maps, line);) {
        if (line.find("-") != std::string::npos && line.find(':') > line.find(' '))
            here = line.find(folder.path() + "/model.safetensors") != std::string::npos;
        if (here && line.rfind("Rss:", 0) == 0) resident_kib = std::stoll(line.substr(4));
    }
    // Few of the 64 MiB are resident: the header, and the pages that the tensor shares with other
    // tensors.
    REQUIRE(resident_kib >= 0);
    CHECK(resident_kib < 256);
}

}  // namespace dslaunch::test
