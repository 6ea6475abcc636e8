// Names of tensors and metadata in GGUF files, compared with the constants of llama.cpp's package
// gguf.
#include <cstdlib>
#include <string>

#include "support/skip.h"
#include "support/temporary_folder.h"
#include "unit/storage/gguf/gguf_folders.h"

using namespace dslaunch;
using namespace dslaunch::storage;
using namespace dslaunch::test;

namespace {

// Prints a line for each name in the files of its arguments that the package does not know.
constexpr const char* kScript = R"(import re, sys
from gguf import GGUFReader, constants as c
keys = set()
for group in vars(c.Keys).values():
    if isinstance(group, type):
        keys.update(v for v in vars(group).values() if isinstance(v, str))
archs = {name: arch for arch, name in c.MODEL_ARCH_NAMES.items()}
seen = 0
for path in sys.argv[2:]:
    reader = GGUFReader(path)
    arch = bytes(reader.fields["general.architecture"].parts[-1]).decode()
    if arch not in archs:
        print("architecture", arch)
        continue
    tensors = {c.TENSOR_NAMES[t] for t in c.MODEL_TENSORS[archs[arch]]}
    for key in reader.fields:
        if not key.startswith("GGUF.") and re.sub("^" + arch + "\\.", "{arch}.", key) not in keys:
            print("key", arch, key)
    for tensor in reader.tensors:
        seen += 1
        name = re.sub("\\.(weight|bias)$", "", tensor.name)
        if re.sub("^blk\\.[0-9]+\\.", "blk.{bid}.", name) not in tensors:
            print("tensor", arch, tensor.name)
open(sys.argv[1], "w").write(str(seen))
)";

bool has_package() {
    if (std::system("python3 -c 'import gguf' 2>/dev/null") == 0) return true;
    report_skipped("names in GGUF files as the gguf package has them",
                   "python3 has no package gguf: pip install gguf");
    return false;
}

// Returns the names in FILES that the package does not know. COUNT gets the number of tensors.
std::string unknown_names(const TemporaryFolder& place, const std::string& files, int64_t& count) {
    const std::string script = place.path() + "/names.py", out = place.path() + "/unknown";
    write_file(script, kScript);
    const std::string seen = place.path() + "/seen";
    REQUIRE(std::system(
                ("python3 -W ignore " + script + " " + seen + files + " >" + out).c_str()) == 0);
    count = std::stoll(content_of(seen));
    return content_of(out);
}

}  // namespace

TEST_CASE("the gguf package knows each architecture, key and tensor that is written") {
    if (!has_package()) return;
    const TemporaryFolder place;
    std::string files;
    int64_t tensors = 0;
    for (const auto& [architecture, fields] : family_rows()) {
        const std::string from = place.path() + "/from" + std::to_string(files.size());
        write_folder(from, config_of(architecture, fields));
        const std::string file = from + ".gguf";
        static_cast<void>(write_gguf(open_model_folder(from), file, plainly(GgufFileType::kF32)));
        tensors += std::ssize(GgufFile(file).content().tensors);
        files += " " + file;
    }
    int64_t seen = 0;
    CHECK(unknown_names(place, files, seen) == "");
    CHECK(seen == tensors);
}

TEST_CASE("the comparison with the gguf package finds names that it does not know") {
    if (!has_package()) return;
    const TemporaryFolder place;
    const std::string from = place.path() + "/from", file = place.path() + "/model.gguf";
    write_folder(from, config_of("LlamaForCausalLM", Json::object()));
    static_cast<void>(write_gguf(open_model_folder(from), file, plainly(GgufFileType::kF32)));
    std::string bytes = content_of(file);
    for (const auto& [name, wrong] :
         {std::pair<std::string, std::string>{"blk.1.attn_q.", "blk.1.attn_w."},
          {"llama.context_length", "llama.context_lengths"}}) {
        const size_t at = bytes.find(name);
        REQUIRE(at != std::string::npos);
        bytes.replace(at, name.size(), wrong.substr(0, name.size()));
    }
    bytes[bytes.find("llama.context_length") + 6] = 'k';
    write_file(file, bytes);
    int64_t seen = 0;
    const std::string unknown = unknown_names(place, " " + file, seen);
    CHECK_THAT(unknown, Catch::Contains("tensor llama blk.1.attn_w.weight"));
    CHECK_THAT(unknown, Catch::Contains("key llama llama.kontext_length"));
}
