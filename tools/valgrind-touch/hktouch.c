/* hktouch: a valgrind tool that records which bytes of heap blocks a program reads and writes.
 *
 * Copyright (C) 2026 the authors of hksim
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * This program is free software; you can redistribute it and/or modify it under the terms of the GNU General Public
 * License as published by the Free Software Foundation; either version 2 of the License, or (at your option) any later
 * version. It comes without any warranty. See the file LICENSE in this folder.
 *
 * The tool knows nothing about allocators. The recorder, which is preloaded into the program, starts the tool with the
 * client request BEGIN, which names the output file. In a table it marks those 64 KiB granules of the address space that
 * contain heap blocks. An access to a marked granule is one 64-bit word in the file:
 *
 *   bits 0-46 address   bits 47-61 bytes   bits 62-63 0 read, 1 write, 2 read then write, 3 not an access
 *
 * In a word that is not an access, bits 47-61 are its kind (RUNS, CREATED) and bits 0-46 valgrind's thread id.
 */
#include "pub_tool_basics.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

/* From valgrind's core: moves a descriptor above those that the program may use, and closes it at exec. */
extern Int VG_(safe_fd)(Int oldfd);

enum { READ, WRITE, MODIFY, OTHER };
enum { RUNS = 1, CREATED = 2 };

#define BEGIN (('H' << 24) | ('K' << 16) | 1)
#define ADDRESS_BITS 47
#define BYTES_MAX 0x7fff
#define META(kind, bytes) (((ULong)(kind) << 62) | ((ULong)(bytes) << ADDRESS_BITS))
/* One bit for each granule below 2^47. */
#define GRANULE_BITS 16
#define TABLE_BYTES (1ul << (ADDRESS_BITS - GRANULE_BITS - 3))

#define WORDS 8192
static ULong words[WORDS];
static UInt used;
static Int out = -1;
static UChar *heap;
static ThreadId running;

static void stop(void)
{
   if (out >= 0)
      VG_(close)(out);
   out = -1;
   used = 0;
}

static void flush(void)
{
   const UChar *at = (const UChar *)words;
   Int left = used * sizeof words[0];
   while (out >= 0 && left > 0) {
      Int wrote = VG_(write)(out, at, left);
      if (wrote <= 0) { /* the file ends early, which the reader detects and reports */
         stop();
         return;
      }
      at += wrote;
      left -= wrote;
   }
   used = 0;
}

static inline void put(ULong word)
{
   words[used++] = word;
   if (used == WORDS)
      flush();
}

static inline Bool marked(Addr address)
{
   return (heap[(address >> (GRANULE_BITS + 3)) & (TABLE_BYTES - 1)] >> ((address >> GRANULE_BITS) & 7)) & 1;
}

/* Called before each access that the program's own code makes. */
static VG_REGPARM(2) void on_access(Addr address, UWord meta)
{
   if (marked(address))
      put(address | meta);
}

/* An access of any size, such as by a system call. */
static void on_range(UInt kind, Addr address, SizeT bytes)
{
   while (out >= 0 && bytes > 0 && address < (1ul << ADDRESS_BITS)) {
      SizeT part = bytes < BYTES_MAX ? bytes : BYTES_MAX;
      on_access(address, META(kind, part));
      address += part;
      bytes -= part;
   }
}

static void on_core_read(CorePart part, ThreadId tid, const HChar *what, Addr address, SizeT bytes)
{
   on_range(READ, address, bytes);
}

static void on_core_read_string(CorePart part, ThreadId tid, const HChar *what, Addr address)
{
   SizeT bytes = 0;
   while (out >= 0 && VG_(am_is_valid_for_client)(address + bytes, 1, VKI_PROT_READ))
      if (((const HChar *)address)[bytes++] == 0)
         break;
   on_range(READ, address, bytes);
}

static void on_core_write(CorePart part, ThreadId tid, Addr address, SizeT bytes)
{
   on_range(WRITE, address, bytes);
}

static void on_runs(ThreadId tid, ULong blocks)
{
   if (out >= 0 && tid != running)
      put(META(OTHER, RUNS) | tid);
   running = tid;
}

static void on_created(ThreadId parent, ThreadId child)
{
   if (out >= 0)
      put(META(OTHER, CREATED) | child);
}

/* Handles BEGIN: starts recording, and returns the table to the program. */
static Bool on_request(ThreadId tid, UWord *request, UWord *answer)
{
   Int fd;
   if (request[0] != BEGIN)
      return False;
   stop();
   fd = VG_(fd_open)((const HChar *)request[1], VKI_O_WRONLY | VKI_O_CREAT | VKI_O_EXCL, 0600);
   out = fd < 0 ? -1 : VG_(safe_fd)(fd);
   if (out >= 0)
      put(META(OTHER, RUNS) | tid);
   running = tid;
   *answer = out < 0 ? 0 : (UWord)heap;
   return True;
}

static void before_fork(ThreadId tid) { flush(); }

/* The child gets a separate file as soon as its recorder requests one. */
static void in_child(ThreadId tid) { stop(); }

static void on_syscall(ThreadId tid, UInt number, UWord *args, UInt count)
{
   if (number == __NR_execve || number == __NR_execveat)
      flush();
}

static void after_syscall(ThreadId tid, UInt number, UWord *args, UInt count, SysRes result) {}

static void add(IRSB *to, IRExpr *guard, IRExpr *address, UInt kind, Int bytes)
{
   IRExpr **args = mkIRExprVec_2(address, mkIRExpr_HWord(META(kind, bytes)));
   IRDirty *call = unsafeIRDirty_0_N(2, "on_access", VG_(fnptr_to_fnentry)(on_access), args);
   if (guard)
      call->guard = guard;
   addStmtToIRSB(to, IRStmt_Dirty(call));
}

static void add_dirty(IRSB *to, const IRDirty *dirty)
{
   if (dirty->mFx == Ifx_Read || dirty->mFx == Ifx_Modify)
      add(to, dirty->guard, dirty->mAddr, READ, dirty->mSize);
   if (dirty->mFx == Ifx_Write || dirty->mFx == Ifx_Modify)
      add(to, dirty->guard, dirty->mAddr, WRITE, dirty->mSize);
}

static void add_cas(IRSB *to, const IRCAS *cas, const IRTypeEnv *types)
{
   Int bytes = sizeofIRType(typeOfIRExpr(types, cas->dataLo)) * (cas->dataHi ? 2 : 1);
   add(to, NULL, cas->addr, MODIFY, bytes);
}

static void add_guarded_load(IRSB *to, const IRLoadG *load)
{
   IRType wide, narrow;
   typeOfIRLoadGOp(load->cvt, &wide, &narrow);
   add(to, load->guard, load->addr, READ, sizeofIRType(narrow));
}

static void add_linked(IRSB *to, const IRStmt *st, const IRTypeEnv *types)
{
   if (st->Ist.LLSC.storedata)
      add(to, NULL, st->Ist.LLSC.addr, WRITE, sizeofIRType(typeOfIRExpr(types, st->Ist.LLSC.storedata)));
   else
      add(to, NULL, st->Ist.LLSC.addr, READ, sizeofIRType(typeOfIRTemp(types, st->Ist.LLSC.result)));
}

/* Adds a call for each access that the statement makes. */
static void add_accesses(IRSB *to, const IRStmt *st, const IRTypeEnv *types)
{
   switch (st->tag) {
   case Ist_WrTmp:
      if (st->Ist.WrTmp.data->tag == Iex_Load)
         add(to, NULL, st->Ist.WrTmp.data->Iex.Load.addr, READ, sizeofIRType(st->Ist.WrTmp.data->Iex.Load.ty));
      break;
   case Ist_Store:
      add(to, NULL, st->Ist.Store.addr, WRITE, sizeofIRType(typeOfIRExpr(types, st->Ist.Store.data)));
      break;
   case Ist_StoreG:
      add(to, st->Ist.StoreG.details->guard, st->Ist.StoreG.details->addr, WRITE,
          sizeofIRType(typeOfIRExpr(types, st->Ist.StoreG.details->data)));
      break;
   case Ist_LoadG:
      add_guarded_load(to, st->Ist.LoadG.details);
      break;
   case Ist_Dirty:
      if (st->Ist.Dirty.details->mFx != Ifx_None)
         add_dirty(to, st->Ist.Dirty.details);
      break;
   case Ist_CAS:
      add_cas(to, st->Ist.CAS.details, types);
      break;
   case Ist_LLSC:
      add_linked(to, st, types);
      break;
   default:
      break;
   }
}

static IRSB *instrument(VgCallbackClosure *closure, IRSB *from, const VexGuestLayout *layout,
                        const VexGuestExtents *extents, const VexArchInfo *host, IRType guest_word, IRType host_word)
{
   IRSB *to = deepCopyIRSBExceptStmts(from);
   for (Int i = 0; i < from->stmts_used; i++) {
      add_accesses(to, from->stmts[i], from->tyenv);
      addStmtToIRSB(to, from->stmts[i]);
   }
   return to;
}

static void begin(void)
{
   heap = VG_(am_shadow_alloc)(TABLE_BYTES);
   if (!heap)
      VG_(tool_panic)("no address space for the table of granules");
   VG_(atfork)(before_fork, NULL, in_child);
}

static void end(Int status) { flush(); }

static void before_options(void)
{
   VG_(details_name)("hktouch");
   VG_(details_version)(NULL);
   VG_(details_description)("writes down accesses to heap blocks, for hksim");
   VG_(details_copyright_author)("Copyright (C) 2026 the authors of hksim; GPL-2.0-or-later.");
   VG_(details_bug_reports_to)("the authors of hksim");
   VG_(basic_tool_funcs)(begin, instrument, end);
   VG_(needs_client_requests)(on_request);
   VG_(needs_syscall_wrapper)(on_syscall, after_syscall);
   VG_(track_pre_mem_read)(on_core_read);
   VG_(track_pre_mem_read_asciiz)(on_core_read_string);
   VG_(track_post_mem_write)(on_core_write);
   VG_(track_start_client_code)(on_runs);
   VG_(track_pre_thread_ll_create)(on_created);
}

VG_DETERMINE_INTERFACE_VERSION(before_options)
