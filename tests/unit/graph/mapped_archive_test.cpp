// The mapped loader, compared with LibTorch's own, and the memory in which its tensors are.
#include "graph/archive/mapped_archive.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/serialization/import.h>

#include <fstream>
#include <functional>
#include <map>

#include "base/error.h"
#include "graph/archive/model.h"
#include "graph/models/save_archive.h"
#include "storage/files/crc32.h"
#include "storage/files/zip_archive.h"
#include "storage/files/zip_format.h"
#include "support/catch.h"
#include "support/fixtures.h"
#include "support/job_process.h"
#include "support/text_tools.h"
#include "unit/graph/torch_reference.h"

namespace dslaunch {

using namespace graph;
using namespace storage;
namespace {

// A zip of stored records whose contents begin MISALIGNED bytes after a multiple of 64.
class ZipText {
  public:
    explicit ZipText(size_t misaligned) : misaligned_(misaligned) {}

    // Adds a record. EXPANDED is the size that a deflated record claims to have; 0: CONTENT is
    // stored.
    void add(const std::string& name, const std::string& content, size_t expanded = 0) {
        const auto bytes = std::as_bytes(std::span(content));
        std::string facts;  // the fields that the local header and the directory share
        zip::append<2>(facts, expanded > 0 ? zip::kDeflated : 0);
        facts += std::string(4, '\0');
        zip::append<4>(facts, crc32(bytes));
        zip::append<4>(facts, content.size());
        zip::append<4>(facts, expanded > 0 ? expanded : content.size());
        zip::append<2>(facts, name.size());
        const size_t begin = text_.size();
        size_t padding = 4;
        while ((begin + zip::kLocalBytes + name.size() + padding) % 64 != misaligned_) ++padding;
        zip::append<4>(text_, zip::kLocalMark);
        text_ += std::string(4, '\0') + facts;
        zip::append<2>(text_, padding);
        text_ += name;
        zip::append<2>(text_, zip::kPaddingField);
        zip::append<2>(text_, padding - 4);
        text_ += std::string(padding - 4, 'Z') + content;
        zip::append<4>(directory_, zip::kCentralMark);
        directory_ += std::string(6, '\0') + facts + std::string(12, '\0');
        zip::append<4>(directory_, begin);
        directory_ += name;
        ++count_;
    }

    [[nodiscard]] std::string text() const {
        std::string end;
        zip::append<4>(end, zip::kEndMark);
        zip::append<4>(end, 0);
        zip::append<2>(end, count_);
        zip::append<2>(end, count_);
        zip::append<4>(end, directory_.size());
        zip::append<4>(end, text_.size());
        zip::append<2>(end, 0);
        return text_ + directory_ + end;
    }

  private:
    size_t misaligned_;
    std::string text_;
    std::string directory_;
    size_t count_ = 0;
};

bool lies_in(const at::Tensor& tensor, const MappedFile& file) {
    const auto* const data = static_cast<const std::byte*>(tensor.storage().data());
    return std::greater_equal<>()(data, file.bytes().data()) &&
           std::less<>()(data, file.bytes().data() + file.bytes().size());
}

// Returns file and line of each node of GRAPH, in the importer's source and in the Python
// program's.
std::string places_of(const torch::jit::Graph& graph) {
    std::string places;
    for (const torch::jit::Node* node : graph.nodes()) {
        places += node->sourceRange().str() + "|";
        if (const auto origin = node->sourceRange().findSourceRangeThatGenerated())
            places += origin->str();
        places += "\n";
    }
    return places;
}

void check_equal(const torch::jit::Module& ours, const torch::jit::Module& theirs) {
    const auto mine = ours.named_attributes(), other = theirs.named_attributes();
    REQUIRE(mine.size() == other.size());
    auto at_mine = mine.begin();
    for (const auto& attribute : other) {
        INFO(attribute.name);
        CHECK((*at_mine).name == attribute.name);
        if (attribute.value.isTensor()) {
            const at::Tensor a = (*at_mine).value.toTensor(), b = attribute.value.toTensor();
            CHECK(a.requires_grad() == b.requires_grad());
            CHECK(a.strides() == b.strides());
            CHECK(at::equal(a, b));
        }
        ++at_mine;
    }
    const auto ours_graph = ours.get_method("forward").graph();
    const auto theirs_graph = theirs.get_method("forward").graph();
    CHECK(ours_graph->toString(false) == theirs_graph->toString(false));
    CHECK(places_of(*ours_graph) == places_of(*theirs_graph));
}

// Saves a module with one parameter of 16 pages and one buffer of one number.
void save_large(const std::string& path) {
    torch::jit::Module module("Large");
    module.register_parameter("weight", at::arange(16 * 1024, at::kFloat), false);
    module.register_buffer("count", at::zeros({1}));
    module.define("def forward(self, x: Tensor) -> Tensor:\n    return (self.weight * x).sum()\n");
    save_archive(module, path);
}

}  // namespace

TEST_CASE("a mapped archive equals what torch::jit::load reads, down to its Python lines") {
    for (const std::string& name : test::fixture_names()) {
        const std::string path = test::fixture_archive(name);
        if (path.ends_with(".pt2")) continue;
        INFO(name);
        const LoadedArchive loaded = load_archive(path);
        REQUIRE(loaded.files.size() == 1);
        check_equal(loaded.module, torch::jit::load(path));
        for (const auto& parameter : loaded.module.named_parameters())
            if (parameter.value.numel() > 0) CHECK(lies_in(parameter.value, *loaded.files[0]));
    }
}

TEST_CASE("a model's pages are given back when asked, but for those that were written") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/large.pt";
    save_large(path);
    const Model model = Model::load(path);
    const at::NoGradGuard no_grad;
    at::Tensor weight = model.parameters()[0].tensor;
    CHECK(weight.sum(at::kDouble).item<double>() == 16383.0 * 16384 / 2);
    const int64_t all = model.release_pages(0).value;
    CHECK(all >= 15 * 4096);  // the first and the last page are shared with other records
    CHECK(model.release_pages(0).value == 0);
    weight[8 * 1024].fill_(-1);
    CHECK(weight.sum(at::kDouble).item<double>() == 16383.0 * 16384 / 2 - 8 * 1024 - 1);
    CHECK(model.release_pages(0).value == all - 4096);
    CHECK(weight[8 * 1024].item<float>() == -1);
    CHECK(Model::load(path).parameters()[0].tensor[8 * 1024].item<float>() == 8 * 1024);
    // A tensor that was moved has no pages of the archive to release.
    weight.set_data(weight.clone());
    CHECK(model.release_pages(0).value == 0);
    CHECK(weight[8 * 1024].item<float>() == -1);
}

TEST_CASE("a tensor outlives the model that it was loaded with") {
    const test::TemporaryFolder folder;
    save_large(folder.path() + "/large.pt");
    at::Tensor weight = Model::load(folder.path() + "/large.pt").parameters()[0].tensor;
    CHECK(weight[16383].item<float>() == 16383);
}

TEST_CASE("weights that were saved on a GPU are read on a machine without one") {
    const test::TemporaryFolder folder;
    const std::string original = test::fixture_path("models/mlp.pt");
    const std::string from = std::string("X\x03\x00\x00\x00", 5) + "cpu";
    const std::string to = std::string("X\x06\x00\x00\x00", 5) + "cuda:0";
    for (const size_t misaligned : {0, 8}) {  // mapped, and copied by LibTorch
        ZipText zip(misaligned);
        int places = 0;
        for (auto [name, content] : test::records_of(original)) {
            for (size_t at = 0;
                 name.ends_with(".pkl") && (at = content.find(from, at)) != std::string::npos;
                 ++places)
                content.replace(at, from.size(), to);
            zip.add("m/" + name, content);
        }
        REQUIRE(places > 0);
        const std::string path = folder.path() + "/cuda.pt";
        test::write_file(path, zip.text());
        const Model model = Model::load(path);
        const Model expected = Model::load(original);
        REQUIRE(model.parameters().size() == expected.parameters().size());
        for (size_t p = 0; p < model.parameters().size(); ++p) {
            CHECK(model.parameters()[p].tensor.device().is_cpu());
            CHECK(at::equal(model.parameters()[p].tensor, expected.parameters()[p].tensor));
        }
    }
}

TEST_CASE("records that cannot be mapped are copied") {
    const test::TemporaryFolder folder;
    const std::string original = test::fixture_path("models/gpt-tied.pt");
    const std::string compressed = folder.path() + "/compressed.pt";
    const std::string misaligned = folder.path() + "/misaligned.pt";
    ZipText zip(/*misaligned=*/36);
    {
        caffe2::serialize::PyTorchStreamWriter writer(compressed);
        for (const auto& [name, content] : test::records_of(original)) {
            if (name != "version" && name != ".data/serialization_id")
                writer.writeRecord(name, content.data(), content.size(), /*compress=*/true);
            zip.add("root/" + name, content);
        }
        writer.writeEndOfFile();
    }
    test::write_file(misaligned, zip.text());
    for (const std::string& path : {compressed, misaligned}) {
        INFO(path);
        const LoadedArchive loaded = load_archive(path);
        REQUIRE(loaded.files.size() == 1);
        check_equal(loaded.module, torch::jit::load(original));
        for (const auto& parameter : loaded.module.named_parameters())
            CHECK_FALSE(lies_in(parameter.value, *loaded.files[0]));
    }
}

TEST_CASE("an archive that says it expands without bound is refused before a byte is allocated") {
    const test::TemporaryFolder folder;
    const std::string original = test::fixture_path("models/mlp.pt");
    const std::string path = folder.path() + "/bomb.pt";
    struct Row {
        std::vector<size_t> expanded;
        bool refused;
    };
    for (const Row& row :
         {Row{{1000}, false}, Row{{size_t{300} << 20}, true}, Row{{size_t{0xFFFFFFF0}}, true},
          Row{{size_t{200} << 20, size_t{200} << 20}, true}}) {
        ZipText zip(/*misaligned=*/0);
        for (const auto& [name, content] : test::records_of(original))
            zip.add("root/" + name, content);
        for (size_t i = 0; i < row.expanded.size(); ++i)
            zip.add("root/extra/" + std::to_string(i), "x", row.expanded[i]);
        test::write_file(path, zip.text());
        std::string said;
        try {
            static_cast<void>(load_archive(path));
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kInput);
            said = error.what();
        }
        INFO(said);
        CHECK((said.find("claim to expand to") != std::string::npos) == row.refused);
    }
}

TEST_CASE("an archive whose records are not where one reader alone finds them is refused") {
    const test::TemporaryFolder folder;
    ZipText zip(/*misaligned=*/0);
    for (const auto& [name, content] : test::records_of(test::fixture_path("models/mlp.pt")))
        zip.add("root/" + name, content);
    zip.add("beside/note", "a record under another root");
    test::write_file(folder.path() + "/two-roots.pt", zip.text());
    CHECK_THROWS_WITH(load_archive(folder.path() + "/two-roots.pt"),
                      Catch::Contains("is not under 'root/'"));
}

TEST_CASE("an attribute that is not of its class's type is refused") {
    const test::TemporaryFolder folder;
    const std::string path = folder.path() + "/other.pt";
    const auto with = [&](const std::string& from, const std::string& to) {
        ZipText zip(/*misaligned=*/0);
        for (auto [name, content] : test::records_of(test::fixture_path("models/mlp.pt"))) {
            if (name == "data.pkl") {
                const size_t at = content.find(from);
                REQUIRE(at != std::string::npos);
                content.replace(at, from.size(), to);
            }
            zip.add("root/" + name, content);
        }
        test::write_file(path, zip.text());
        return test::error_of(ExitCode::kInput, [&] { static_cast<void>(Model::load(path)); });
    };
    const std::string training = "training" + std::string("q\x01", 2);
    CHECK(with(training + "\x88", training + "\x88") == "accepted");
    CHECK_THAT(with(training + "\x88", training + std::string("K\x01", 2)),
               Catch::Contains("training of a ") && Catch::Contains("has the type int"));
    // If one module took another one's place, its methods would read slots that it does not have.
    const std::string relu = "c__torch__.torch.nn.modules.activation\nReLU\n";
    const std::string linear = "c__torch__.torch.nn.modules.linear\nLinear\n";
    CHECK_THAT(with(linear, relu), Catch::Contains("0 of a ") && Catch::Contains("ReLU"));
    CHECK_THAT(with(relu, "c__torch__.torch.nn.modules.activation\nNone\n"),
               Catch::Contains("other.pt: "));
}

TEST_CASE("a tensor that is larger than its record is refused") {
    const test::TemporaryFolder folder;
    ZipText zip(/*misaligned=*/0);
    for (const auto& [name, content] : test::records_of(test::fixture_path("models/mlp.pt")))
        zip.add("root/" + name, name == "data/0" ? content.substr(0, content.size() / 2) : content);
    test::write_file(folder.path() + "/short.pt", zip.text());
    CHECK_THROWS_WITH(Model::load(folder.path() + "/short.pt"),
                      Catch::Contains("the archive is damaged") && Catch::Contains("short.pt"));
}

}  // namespace dslaunch
