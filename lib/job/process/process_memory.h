// What the allocator does with freed memory: given back while a job is set up, kept while it steps.
// Of the whole process; before threads are many.
#pragma once

namespace dslaunch::job {

// What loading takes goes back to the system when it is freed: large blocks stay mappings of their
// own.
void return_freed_memory();

// Activations come and go each step: freed memory is kept, so that no page is faulted in twice.
void keep_freed_memory();

}  // namespace dslaunch::job
