(* Every night under one budget: python/dpgep/privacy/continual.py. On night t the combination of the sums of nights
   s <= t with the coefficients c (t - s) is published, plus noise. A person comes on k nights, which may lie apart, and
   changes the sums of the a-th of them by a vector v a with a square of at most m. *)

From Proofs Require Import Vectors.

(* constants: the square of all that one person changes, in units of a night's noise; K is that of k neighbouring columns *)
Definition all_nights (m K : R) : R := m * K.
(* end *)

Section Nights.
Variables (p : nat) (c : nat -> R).
Hypothesis nonnegative : forall i, 0 <= c i.
Hypothesis falling : forall i, c (S i) <= c i.
Hypothesis banded : forall i, (p <= i)%nat -> c i = 0.

(* The column of night s of the triangular matrix, and what columns have in common in the first T nights. *)
Definition column (s : nat) : vector := fun t => if (s <=? t)%nat then c (t - s) else 0.
Definition common (T s s' : nat) : R := dot T (column s) (column s').
Definition neighbours (k : nat) : vector := fun t => sum k (fun a => column a t).

Lemma column_nonneg s t : 0 <= column s t.
Proof. unfold column. destruct Nat.leb; [apply nonnegative | lra]. Qed.

Lemma falls i g : c (i + g)%nat <= c i.
Proof.
  induction g as [|g IH]; [rewrite Nat.add_0_r; lra|].
  rewrite Nat.add_succ_r. eapply Rle_trans; [apply falling | exact IH].
Qed.

Lemma sum_shifted s T f : (forall t, (t < s)%nat -> f t = 0) -> sum T f = sum (T - s) (fun i => f (i + s)%nat).
Proof.
  intros Z. induction T as [|T IH]; [reflexivity|]. simpl sum at 1. rewrite IH.
  destruct (Nat.le_gt_cases s T) as [L|L].
  - rewrite Nat.sub_succ_l by assumption. simpl. now rewrite Nat.sub_add.
  - rewrite (Z T L). replace (T - s)%nat with 0%nat by lia. replace (S T - s)%nat with 0%nat by lia. simpl. ring.
Qed.

Lemma common_gap T s g : common T s (s + g) = sum (T - (s + g)) (fun i => c (i + g)%nat * c i).
Proof.
  unfold common, dot. rewrite (sum_shifted (s + g)).
  - apply sum_ext. intros i _. unfold column.
    assert (E : (s <=? i + (s + g))%nat = true) by (apply Nat.leb_le; lia).
    assert (E' : (s + g <=? i + (s + g))%nat = true) by (apply Nat.leb_le; lia). rewrite E, E'.
    f_equal; f_equal; lia.
  - intros t H. unfold column. assert (E : (s + g <=? t)%nat = false) by (apply Nat.leb_gt; lia). rewrite E. ring.
Qed.

Lemma more_terms n g : sum n (fun i => c (i + g)%nat * c i) <= sum p (fun i => c (i + g)%nat * c i).
Proof.
  destruct (Nat.le_gt_cases n p) as [L|L].
  - replace p with (n + (p - n))%nat by lia. induction (p - n)%nat as [|k IH]; [rewrite Nat.add_0_r; lra|].
    rewrite Nat.add_succ_r. simpl.
    pose proof (Rmult_le_pos _ _ (nonnegative (n + k + g)) (nonnegative (n + k))). lra.
  - replace n with (p + (n - p))%nat by lia. induction (n - p)%nat as [|k IH]; [rewrite Nat.add_0_r; lra|].
    rewrite Nat.add_succ_r. simpl. rewrite (banded (p + k)) by lia. lra.
Qed.

(* A larger gap has less in common, as no coefficient is larger than the one before it. *)
Lemma gaps k T s g a h : (a + h < k)%nat -> (h <= g)%nat -> common T s (s + g) <= common (p + k) a (a + h).
Proof.
  intros B G. rewrite !common_gap. eapply Rle_trans; [apply more_terms|].
  apply Rle_trans with (sum p (fun i => c (i + h)%nat * c i)).
  - apply sum_le. intros i _. apply Rmult_le_compat_r; [apply nonnegative|].
    replace (i + g)%nat with (i + h + (g - h))%nat by lia. apply falls.
  - replace (p + k - (a + h))%nat with (p + (k - (a + h)))%nat by lia.
    induction (k - (a + h))%nat as [|n IH]; [rewrite Nat.add_0_r; lra|].
    rewrite Nat.add_succ_r. simpl. pose proof (Rmult_le_pos _ _ (nonnegative (p + n + h)) (nonnegative (p + n))). lra.
Qed.

Section Person.
Variables (k T e : nat) (night : nat -> nat) (v : nat -> vector) (m : R).
Hypothesis later : forall a b, (a < b)%nat -> (b < k)%nat -> (night a < night b)%nat.
Hypotheses (M : 0 <= m) (V : forall a, (a < k)%nat -> squared e (v a) <= m).

Lemma apart a h : (a + h < k)%nat -> (night a + h <= night (a + h))%nat.
Proof.
  induction h as [|h IH]; intros H; [rewrite !Nat.add_0_r; lia|].
  assert (night (a + h) < night (a + S h))%nat by (apply later; lia). specialize (IH ltac:(lia)). lia.
Qed.

Lemma common_sym n s s' : common n s s' = common n s' s.
Proof. apply dot_sym. Qed.

Lemma ordered a b : (a <= b)%nat -> (b < k)%nat -> common T (night a) (night b) <= common (p + k) a b.
Proof.
  intros L B. pose proof (apart a (b - a) ltac:(lia)) as A.
  replace (a + (b - a))%nat with b in A by lia.
  replace (night b) with (night a + (night b - night a))%nat by lia.
  replace b with (a + (b - a))%nat at 2 by lia. apply gaps; lia.
Qed.

(* What a person changes in all that is published on T nights, whichever k nights these are. *)
Definition published : R := sum T (fun t => squared e (fun i => sum k (fun a => column (night a) t * v a i))).

Lemma published_is : published = sum k (fun a => sum k (fun b => common T (night a) (night b) * dot e (v a) (v b))).
Proof.
  unfold published, squared, dot at 1.
  rewrite (sum_ext T _ (fun t => sum k (fun a => sum k (fun b =>
    column (night a) t * column (night b) t * dot e (v a) (v b))))).
  - rewrite sum_swap. apply sum_ext. intros a _. rewrite sum_swap. apply sum_ext. intros b _.
    unfold common, dot at 2. now rewrite sum_times_right.
  - intros t _. rewrite (sum_ext e _ (fun i => sum k (fun a => sum k (fun b =>
      column (night a) t * column (night b) t * (v a i * v b i))))).
    + rewrite sum_swap. apply sum_ext. intros a _. rewrite sum_swap. apply sum_ext. intros b _.
      unfold dot. now rewrite sum_times.
    + intros i _. rewrite sum_product. apply sum_ext. intros a _. apply sum_ext. intros. ring.
Qed.

Lemma neighbours_are n : squared n (neighbours k) = sum k (fun a => sum k (fun b => common n a b)).
Proof.
  unfold squared, dot, neighbours.
  rewrite (sum_ext n _ (fun t => sum k (fun a => sum k (fun b => column a t * column b t)))) by (intros; apply sum_product).
  rewrite sum_swap. apply sum_ext. intros a _. now rewrite sum_swap.
Qed.

Theorem any_nights : published <= all_nights m (squared (p + k) (neighbours k)).
Proof.
  unfold all_nights. apply Rle_trans with (m * squared (p + k) (neighbours k)); [|lra].
  rewrite published_is, neighbours_are, <- sum_times.
  apply sum_le. intros a Ha. rewrite <- sum_times. apply sum_le. intros b Hb.
  assert (0 <= common T (night a) (night b)).
  { apply sum_nonneg. intros. apply Rmult_le_pos; apply column_nonneg. }
  assert (common T (night a) (night b) <= common (p + k) a b).
  { destruct (Nat.le_gt_cases a b); [now apply ordered|].
    rewrite common_sym, (common_sym (p + k)). apply ordered; lia. }
  assert (dot e (v a) (v b) <= m).
  { pose proof (sqrt_sqrt m M) as Q. rewrite <- Q. pose proof (V a Ha). pose proof (V b Hb).
    apply dot_le; try lra; apply sqrt_pos. }
  rewrite Rmult_comm. apply Rle_trans with (m * common T (night a) (night b)).
  - apply Rmult_le_compat_r; trivial.
  - apply Rmult_le_compat_l; trivial.
Qed.
End Person.
End Nights.

(* Attained, on neighbouring nights with one and the same change. *)
Theorem all_nights_is_attained p c k : published c k (p + k) 1 (fun a => a) (fun _ _ => 1)
  = all_nights 1 (squared (p + k) (neighbours c k)).
Proof.
  unfold all_nights. apply eq_trans with (1 * squared (p + k) (neighbours c k)); [rewrite Rmult_1_l | lra].
  unfold published, squared, dot, neighbours. apply sum_ext. intros. simpl.
  rewrite (sum_ext k _ (fun a => column c a i)); [ring | intros; ring].
Qed.
