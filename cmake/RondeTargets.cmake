# ronde_flags: what every target of ours compiles with. ronde_library(): one static library per folder.

add_library(ronde_flags INTERFACE)
target_include_directories(ronde_flags INTERFACE ${PROJECT_SOURCE_DIR}
                                                 ${PROJECT_SOURCE_DIR}/core/include)
target_compile_options(
  ronde_flags
  INTERFACE -Wall
            -Wextra
            # Warnings are errors with the compilers that we test with; another one may know more of them.
            $<$<OR:$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>,$<AND:$<CXX_COMPILER_ID:Clang>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,15>>>:-Werror>
            -Wshadow
            -Wnon-virtual-dtor
            -Wswitch-enum
            # GCC 12 reports "a" + std::to_string(b) as overlapping copies.
            $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
            # Bits must not depend on which kernel ran: no fused multiply-add by the compiler.
            -ffp-contract=off
            $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>)
target_compile_definitions(ronde_flags INTERFACE RONDE_VERSION="${PROJECT_VERSION}")
if(RONDE_SANITIZE)
  target_compile_options(ronde_flags INTERFACE -fsanitize=${RONDE_SANITIZE}
                                               -fno-omit-frame-pointer -g)
  target_link_options(ronde_flags INTERFACE -fsanitize=${RONDE_SANITIZE})
endif()

# ronde_library(NAME SOURCES a.cc b.cc [LINK targets...]): NAME is the folder, the target ronde_NAME.
function(ronde_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_library(ronde_${name} STATIC ${ARG_SOURCES})
  add_library(ronde::${name} ALIAS ronde_${name})
  target_link_libraries(ronde_${name} PUBLIC ronde_flags ${ARG_LINK})
endfunction()

# ronde_test(NAME SOURCES a.cc [LINK targets...] [LABELS l...]): one GoogleTest program, one CTest entry.
function(ronde_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ronde_flags ${ARG_LINK} GTest::gtest GTest::gmock
                                        ronde_test_main)
  add_test(NAME ${name} COMMAND ${name})
  # suite_LABEL builds all tests of a label.
  foreach(label IN LISTS ARG_LABELS)
    if(NOT TARGET suite_${label})
      add_custom_target(suite_${label})
    endif()
    add_dependencies(suite_${label} ${name})
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}")
endfunction()
