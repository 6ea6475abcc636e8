// The LibTorch that a dsworker uses, in the layouts of pip, conda, Debian and users.
#include "launch/machine/torch_place.h"

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

namespace {

namespace fs = std::filesystem;

// A machine with copies of torch in the folders that a test names, all below one temporary folder.
struct Torches {
    TemporaryFolder root;

    [[nodiscard]] std::string path(const std::string& below) const {
        return root.path() + "/" + below;
    }
    // Makes FOLDER/torch with a library, and with version.py if VERSION is not empty.
    void add(const std::string& folder, const std::string& version = "2.11.0+cu130") const {
        const fs::path torch = path(folder) + "/torch";
        fs::create_directories(torch / "lib");
        std::ofstream(torch / "lib/libtorch_cpu.so") << "library";
        if (version.empty()) return;
        std::ofstream(torch / "version.py") << "from typing import Optional\n\n__all__ = []\n"
                                            << "__version__ = '" << version << "'\ncuda = '13.0'\n";
    }
    // Makes an executable FOLDER/python3.
    void add_python(const std::string& folder) const {
        fs::create_directories(path(folder));
        std::ofstream(path(folder) + "/python3") << "#!/bin/sh\n";
    }
    [[nodiscard]] TorchSeeker seeker() const {
        return {path("env"), {path("env/lib/dslaunch")}, "2.11"};
    }
    [[nodiscard]] std::string refusal(const TorchSeeker& seeker,
                                      const EnvironmentList& environment) const {
        try {
            return "found: " + torch_search_path(seeker, environment);
        } catch (const Error& error) {
            CHECK(error.code() == ExitCode::kSetup);
            return error.what();
        }
    }
};

}  // namespace

TEST_CASE("a LibTorch where the program itself searches needs no other search path") {
    const Torches machine;
    machine.add("own", "2.11.0");
    TorchSeeker seeker = machine.seeker();
    seeker.folders.push_back(machine.path("own/torch/lib"));
    CHECK(torch_search_path(seeker, {}).empty());
    CHECK(torch_search_path(seeker, {{kTorchVariable, machine.path("own/torch")}}).empty());
    machine.add("other");
    const std::string message =
        machine.refusal(seeker, {{kTorchVariable, machine.path("other/torch")}});
    CHECK_THAT(message, Catch::Contains("always takes the LibTorch in " + seeker.folders.back()));
}

TEST_CASE("torch is found in each layout of Python environments") {
    struct Layout {
        std::string folder;  // of packages
        std::string variable, value;
    };
    const std::vector<Layout> layouts = {
        {"env/lib/python3.13t/site-packages", "", ""},  // a Python that is not in the program
        {"venv/lib/python3.12/site-packages", "VIRTUAL_ENV", "venv"},
        {"conda/lib/python3.11/site-packages", "CONDA_PREFIX", "conda"},
        {"home/.local/lib/python3.11/site-packages", "HOME", "home"},
        {"target", "PYTHONPATH", "target"},
        {"usr/lib/python3/dist-packages", "PATH", "usr/bin"},
        {"usr/local/lib/python3.11/dist-packages", "PATH", "usr/bin"}};
    for (const Layout& layout : layouts) {
        INFO(layout.folder);
        const Torches machine;
        machine.add_python("usr/bin");
        machine.add(layout.folder);
        EnvironmentList environment;
        if (!layout.variable.empty())
            environment.emplace_back(layout.variable, machine.path(layout.value));
        CHECK(torch_search_path(machine.seeker(), environment) ==
              machine.path(layout.folder) + "/torch/lib");
        if (!layout.variable.empty())
            CHECK_THAT(machine.refusal(machine.seeker(), {}), Catch::Contains("no torch"));
    }
}

TEST_CASE("a python3 that is a link leads to both environments, the nearer first") {
    const Torches machine;
    machine.add_python("usr/bin");
    machine.add("usr/lib/python3/dist-packages");
    fs::create_directories(machine.path("venv/bin"));
    fs::create_symlink(machine.path("usr/bin/python3"), machine.path("venv/bin/python3"));
    const EnvironmentList environment = {{"PATH", "/nonexistent:" + machine.path("venv/bin")}};
    CHECK(torch_search_path(machine.seeker(), environment) ==
          machine.path("usr/lib/python3/dist-packages/torch/lib"));
    machine.add("venv/lib/python3.11/site-packages");
    CHECK(torch_search_path(machine.seeker(), environment) ==
          machine.path("venv/lib/python3.11/site-packages/torch/lib"));
}

TEST_CASE("the CUDA libraries that pip installs beside torch are searched too") {
    const Torches machine;
    machine.add("venv/lib/python3.12/site-packages");
    const std::string packages = machine.path("venv/lib/python3.12/site-packages");
    fs::create_directories(packages + "/nvidia/nccl/lib");
    fs::create_directories(packages + "/nvidia/cu13/lib");
    fs::create_directories(packages + "/nvidia/headers/include");
    CHECK(torch_search_path(machine.seeker(), {{"VIRTUAL_ENV", machine.path("venv")}}) ==
          packages + "/torch/lib:" + packages + "/nvidia/nccl/lib:" + packages +
              "/nvidia/cu13/lib");
}

TEST_CASE("another version of torch is passed over, and named if there is no other") {
    const Torches machine;
    machine.add("venv/lib/python3.12/site-packages", "2.15.0");
    machine.add("conda/lib/python3.12/site-packages", "2.11.0+cpu");
    const EnvironmentList both = {{"VIRTUAL_ENV", machine.path("venv")},
                                  {"CONDA_PREFIX", machine.path("conda")}};
    CHECK(torch_search_path(machine.seeker(), both) ==
          machine.path("conda/lib/python3.12/site-packages/torch/lib"));
    const std::string message = machine.refusal(machine.seeker(), {both.front()});
    CHECK_THAT(message, Catch::Contains("built with LibTorch 2.11"));
    CHECK_THAT(message, Catch::Contains("site-packages/torch, which is version 2.15.0"));
    CHECK_THAT(message, Catch::Contains("pip install 'torch==2.11.*'"));
    CHECK_THAT(message, Catch::Contains("set DSLAUNCH_TORCH"));
    TorchSeeker seeker = machine.seeker();
    seeker.folders.push_back(machine.path("venv/lib/python3.12/site-packages/torch/lib"));
    // The program's own folders come first, so the variable would change nothing.
    CHECK_THAT(machine.refusal(seeker, both), !Catch::Contains("set DSLAUNCH_TORCH"));
    // 2.1 is not 2.11.
    seeker.version = "2.1";
    CHECK_THAT(machine.refusal(seeker, both), Catch::Contains("is version 2.15.0"));
}

TEST_CASE("DSLAUNCH_TORCH names a torch by any of its folders") {
    const Torches machine;
    machine.add("some where", "");  // a LibTorch without Python states no version
    const std::string libraries = machine.path("some where/torch/lib");
    for (const std::string& given : {libraries, machine.path("some where/torch"),
                                     machine.path("some where"), libraries + "/../lib"}) {
        INFO(given);
        CHECK(torch_search_path(machine.seeker(), {{kTorchVariable, given}}) == libraries);
    }
    for (const std::string& given :
         {std::string("some where/torch"), machine.path("nowhere"), machine.path("a:b")}) {
        INFO(given);
        machine.add("a:b");
        CHECK_THAT(machine.refusal(machine.seeker(), {{kTorchVariable, given}}),
                   Catch::Contains("has no lib/libtorch_cpu.so"));
    }
    machine.add("new", "2.12.1");
    CHECK_THAT(machine.refusal(machine.seeker(), {{kTorchVariable, machine.path("new/torch")}}),
               Catch::Contains("is version 2.12.1"));
}

TEST_CASE("programs that need no LibTorch are started as they are") {
    EnvironmentList environment = {{"LD_LIBRARY_PATH", "/x"}};
    for (const char* const program : {"/proc/self/exe", "/etc/hostname", "/nonexistent"}) {
        lead_to_torch(program, environment);
        CHECK(environment == EnvironmentList{{"LD_LIBRARY_PATH", "/x"}});
    }
}
