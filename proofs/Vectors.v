(* Sums, vectors of d real numbers, matrices; what every other file here starts from. *)

From Coq Require Export Reals Psatz Lia.
#[global] Open Scope R_scope.

Fixpoint sum (n : nat) (f : nat -> R) : R :=
  match n with
  | O => 0
  | S k => sum k f + f k
  end.

Definition vector := nat -> R.
Definition matrix := nat -> nat -> R.

Definition dot (d : nat) (x y : vector) := sum d (fun i => x i * y i).
Definition squared (d : nat) (x : vector) := dot d x x.
Definition minus (x y : vector) : vector := fun i => x i - y i.
Definition outer (x y : vector) : matrix := fun i j => x i * y j.
(* The squared Frobenius norm of a matrix of d rows and e columns. *)
Definition frobenius (d e : nat) (A : matrix) := sum d (fun i => squared e (A i)).
Definition difference (A B : matrix) : matrix := fun i j => A i j - B i j.

Lemma sum_ext n f g : (forall i, (i < n)%nat -> f i = g i) -> sum n f = sum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; trivial.
  rewrite (IH (fun i Hi => H i (Nat.lt_lt_succ_r _ _ Hi))), (H n (Nat.lt_succ_diag_r n)). reflexivity.
Qed.

Lemma sum_plus n f g : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

Lemma sum_minus n f g : sum n (fun i => f i - g i) = sum n f - sum n g.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

Lemma sum_times n c f : sum n (fun i => c * f i) = c * sum n f.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

Lemma sum_times_right n c f : sum n (fun i => f i * c) = sum n f * c.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

Lemma sum_zero n : sum n (fun _ => 0) = 0.
Proof. induction n as [|n IH]; simpl; [|rewrite IH]; ring. Qed.

Lemma sum_const n c : sum n (fun _ => c) = INR n * c.
Proof. induction n as [|n IH]; [simpl; ring|]. rewrite S_INR. simpl sum. rewrite IH. ring. Qed.

Lemma sum_le n f g : (forall i, (i < n)%nat -> f i <= g i) -> sum n f <= sum n g.
Proof.
  induction n as [|n IH]; intros H; simpl; [lra|].
  assert (sum n f <= sum n g) by (apply IH; intros; apply H; lia).
  assert (f n <= g n) by (apply H; lia). lra.
Qed.

Lemma sum_le_times n f a : (forall i, (i < n)%nat -> f i <= a) -> sum n f <= a * INR n.
Proof. intros H. rewrite Rmult_comm, <- sum_const. now apply sum_le. Qed.

Lemma sum_nonneg n f : (forall i, (i < n)%nat -> 0 <= f i) -> 0 <= sum n f.
Proof. intros H. rewrite <- (sum_zero n). apply sum_le, H. Qed.

Lemma sum_swap n m f : sum n (fun i => sum m (fun j => f i j)) = sum m (fun j => sum n (fun i => f i j)).
Proof.
  induction n as [|n IH]; simpl; [now rewrite sum_zero|].
  rewrite IH, <- sum_plus. reflexivity.
Qed.

Lemma sum_product n m f g : sum n f * sum m g = sum n (fun i => sum m (fun j => f i * g j)).
Proof. rewrite <- sum_times_right. apply sum_ext. intros. now rewrite sum_times. Qed.

Lemma square_le u v : 0 <= v -> u * u <= v * v -> u <= v.
Proof. nra. Qed.

Lemma dot_sym d x y : dot d x y = dot d y x.
Proof. apply sum_ext. intros. ring. Qed.

Lemma squared_nonneg d x : 0 <= squared d x.
Proof. apply sum_nonneg. intros. nra. Qed.

Lemma dot_minus d x y z : dot d (minus x y) z = dot d x z - dot d y z.
Proof. unfold dot. rewrite <- sum_minus. apply sum_ext. intros. unfold minus. ring. Qed.

Lemma squared_minus d x y : squared d (minus x y) = squared d x + squared d y - 2 * dot d x y.
Proof. unfold squared. rewrite dot_minus, (dot_sym d x), (dot_sym d y), !dot_minus, (dot_sym d y x). ring. Qed.

Theorem cauchy_schwarz d x y : dot d x y * dot d x y <= squared d x * squared d y.
Proof.
  unfold squared. induction d as [|d IH]; unfold dot in *; simpl; [lra|].
  set (D := sum d _) in *. set (X := sum d (fun i => x i * x i)) in *. set (Y := sum d (fun i => y i * y i)) in *.
  assert (0 <= X) by (apply (squared_nonneg d x)). assert (0 <= Y) by (apply (squared_nonneg d y)).
  set (a := x d). set (b := y d).
  assert (2 * D * a * b <= X * (b * b) + Y * (a * a)); [|nra].
  apply square_le; [nra|].
  assert (D * D * ((a * b) * (a * b)) <= X * Y * ((a * b) * (a * b))) by (apply Rmult_le_compat_r; [apply Rle_0_sqr | exact IH]).
  assert (0 <= (X * (b * b) - Y * (a * a)) * (X * (b * b) - Y * (a * a))) by apply Rle_0_sqr. lra.
Qed.

Lemma dot_le d x y a b : squared d x <= a * a -> squared d y <= b * b -> 0 <= a -> 0 <= b -> dot d x y <= a * b.
Proof.
  intros Hx Hy Ha Hb. apply square_le; [nra|].
  pose proof (cauchy_schwarz d x y). pose proof (squared_nonneg d x). pose proof (squared_nonneg d y). nra.
Qed.

Lemma dot_opposite d x y : dot d (fun i => - x i) y = - dot d x y.
Proof. unfold dot. replace (- sum d (fun i => x i * y i)) with (-1 * sum d (fun i => x i * y i)) by ring.
  rewrite <- sum_times. apply sum_ext. intros. ring. Qed.

(* What a row x times a vector q adds to a sum, and what replacing it changes. *)
Lemma frobenius_outer d e x y : frobenius d e (outer x y) = squared d x * squared e y.
Proof.
  unfold frobenius, squared at 2 3, dot. rewrite sum_product. apply sum_ext. intros i _. unfold squared, dot, outer.
  apply sum_ext. intros. ring.
Qed.

Lemma frobenius_difference d e x y x' y' :
  frobenius d e (difference (outer x y) (outer x' y'))
  = squared d x * squared e y + squared d x' * squared e y' - 2 * (dot d x x' * dot e y y').
Proof.
  unfold frobenius, squared, dot. rewrite !sum_product, <- sum_times, <- sum_plus, <- sum_minus.
  apply sum_ext. intros i _. unfold difference, outer. rewrite <- sum_times, <- sum_plus, <- sum_minus.
  apply sum_ext. intros. ring.
Qed.

(* Two changes of at most half the length each. *)
Lemma squared_minus_le d x y : squared d (minus x y) <= 2 * (squared d x + squared d y).
Proof.
  rewrite squared_minus. pose proof (squared_nonneg d (minus (fun i => - x i) y)) as N. rewrite squared_minus in N.
  unfold squared in *. rewrite (dot_opposite d x (fun i => - x i)), (dot_sym d x (fun i => - x i)), !dot_opposite in N. lra.
Qed.

Lemma frobenius_difference_le d e A B : frobenius d e (difference A B) <= 2 * (frobenius d e A + frobenius d e B).
Proof.
  unfold frobenius. rewrite <- sum_plus, <- sum_times. apply sum_le. intros. apply (squared_minus_le e (A i) (B i)).
Qed.

(* Pythagoras: what is left of x across orthonormal q_0, ..., q_(m-1). *)
Section Orthonormal.
Variables (d m : nat) (q : nat -> vector).
Definition orthonormal := forall r t, (r < m)%nat -> (t < m)%nat -> dot d (q r) (q t) = if Nat.eqb r t then 1 else 0.
Definition across (x : vector) : vector := fun i => x i - sum m (fun t => dot d x (q t) * q t i).

Lemma dot_across x y :
  dot d (across x) y = dot d x y - sum m (fun t => dot d x (q t) * dot d (q t) y).
Proof.
  unfold dot at 1 2, across.
  rewrite (sum_ext d _ (fun i => x i * y i - sum m (fun t => dot d x (q t) * (q t i * y i)))).
  - rewrite sum_minus, sum_swap. f_equal. apply sum_ext. intros. unfold dot at 3. now rewrite sum_times.
  - intros i _. rewrite Rmult_minus_distr_r, <- sum_times_right. f_equal. apply sum_ext. intros. ring.
Qed.

Lemma select n t f : (t < n)%nat -> sum n (fun r => f r * (if Nat.eqb r t then 1 else 0)) = f t.
Proof.
  induction n as [|n IH]; intros H; [lia|]. simpl. destruct (Nat.eqb_spec n t) as [->|N].
  - rewrite (sum_ext t _ (fun _ => 0)), sum_zero; [ring|]. intros i Hi.
    destruct (Nat.eqb_spec i t); [lia | ring].
  - rewrite IH by lia. ring.
Qed.

Hypothesis directions : orthonormal.

Lemma dot_of_across x y : dot d (across x) (across y) = dot d x y - sum m (fun t => dot d x (q t) * dot d y (q t)).
Proof.
  rewrite dot_across, (dot_sym d x), dot_across.
  rewrite (sum_ext m (fun t => dot d x (q t) * dot d (q t) (across y)) (fun _ => 0)).
  - rewrite sum_zero, (dot_sym d y x), Rminus_0_r. f_equal. apply sum_ext. intros. rewrite (dot_sym d (q i) x). ring.
  - intros t Ht. rewrite (dot_sym d (q t)), dot_across.
    rewrite (sum_ext m _ (fun r => dot d y (q r) * (if Nat.eqb r t then 1 else 0))).
    + rewrite select by assumption. ring.
    + intros. now rewrite directions.
Qed.

Lemma squared_across x : squared d (across x) = squared d x - sum m (fun t => dot d x (q t) ^ 2).
Proof. unfold squared. rewrite dot_of_across. f_equal. apply sum_ext. intros. ring. Qed.
End Orthonormal.
